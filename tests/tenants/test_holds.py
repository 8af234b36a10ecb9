"""A job's money: held when it enters, captured by its usage, given back when it ends."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tenants.billing.ledger.books import account_of
from tenants.billing.ledger.holds import Charge, hold_place, hold_release, reserved, usage_capture
from tenants.billing.models import Account, BillingMode, Hold, LedgerEntry
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import TenantFactory
from tests.support.ledger import balance, give_credit, set_mode
from tests.support.story import Person

MAY = dt.date(2026, 5, 1)
pytestmark = pytest.mark.django_db


def place(tenant: Tenant, amount: str, job_id: UUID | None = None) -> Hold:
    return hold_place(tenant=tenant, job_id=job_id or uuid4(), project_id=None, key_id=None, amount=Decimal(amount))


def charge(tenant: Tenant, job_id: UUID, amount: str, period: dt.date = MAY) -> Charge:
    return Charge(tenant_id=tenant.pk, job_id=job_id, amount=Decimal(amount), currency="EUR", period=period)


@pytest.fixture
def prepaid(alice: Person) -> Tenant:
    """Alice's lab pays before: 10 are there."""
    set_mode(alice.tenant, BillingMode.PREPAID)
    give_credit(alice.tenant, "10")
    return alice.tenant


def test_a_hold_leaves_the_credit_and_comes_back_whole_if_nothing_was_used(prepaid: Tenant) -> None:
    hold = place(prepaid, "4")
    assert (account_of(prepaid).credit, account_of(prepaid).held) == (6, 4)
    assert reserved(prepaid) == 4
    hold_release(job_id=hold.job_id)
    assert (account_of(prepaid).credit, account_of(prepaid).held) == (10, 0)
    assert reserved(prepaid) == 0
    assert hold_release(job_id=hold.job_id) is None  # ending twice gives nothing twice
    assert account_of(prepaid).credit == 10


def test_usage_takes_the_hold_then_the_credit_then_waits_for_the_invoice(prepaid: Tenant) -> None:
    job_id = place(prepaid, "4").job_id
    usage_capture([charge(prepaid, job_id, "1.5")], reference="b-1")
    assert (account_of(prepaid).credit, account_of(prepaid).held) == (6, Decimal("2.5"))
    assert reserved(prepaid) == Decimal("2.5")
    usage_capture([charge(prepaid, job_id, "12.7")], reference="b-2")
    assert (account_of(prepaid).credit, account_of(prepaid).held) == (0, 0)
    assert balance(prepaid, Account.UNBILLED) == Decimal("-4.2")
    assert balance(prepaid, Account.REVENUE) == Decimal("14.2")
    assert reserved(prepaid) == 0
    hold_release(job_id=job_id)
    assert account_of(prepaid).credit == 0


def test_what_was_captured_does_not_come_back(prepaid: Tenant) -> None:
    job_id = place(prepaid, "4").job_id
    usage_capture([charge(prepaid, job_id, "1.000000000001")], reference="b-1")
    hold_release(job_id=job_id)
    assert account_of(prepaid).credit == Decimal("8.999999999999")


def test_the_same_batch_is_captured_once(prepaid: Tenant) -> None:
    job_id = place(prepaid, "4").job_id
    for _ in range(3):
        usage_capture([charge(prepaid, job_id, "1")], reference="b-1")
    assert account_of(prepaid).held == 3
    with pytest.raises(ApplicationError, match="another total"):
        usage_capture([charge(prepaid, job_id, "2")], reference="b-1")


def test_without_enough_credit_a_prepaid_job_does_not_enter(prepaid: Tenant) -> None:
    with pytest.raises(ApplicationError) as refused:
        place(prepaid, "10.000000000001")
    assert (refused.value.code, refused.value.status) == ("insufficient_credit", 402)
    assert account_of(prepaid).credit == 10
    assert reserved(prepaid) == 0


def test_a_job_of_unknown_cost_needs_some_credit(prepaid: Tenant, charlie: Person) -> None:
    assert place(prepaid, "0").funded == 0
    set_mode(charlie.tenant, BillingMode.PREPAID)
    with pytest.raises(ApplicationError, match="some credit"):
        place(charlie.tenant, "0")


def test_an_invoiced_tenants_hold_reserves_and_moves_no_money(alice: Person) -> None:
    job_id = place(alice.tenant, "4").job_id
    assert reserved(alice.tenant) == 4
    assert account_of(alice.tenant).held == 0
    usage_capture([charge(alice.tenant, job_id, "5")], reference="b-1")
    assert reserved(alice.tenant) == 0
    assert balance(alice.tenant, Account.UNBILLED) == -5


def test_an_invoiced_tenants_credit_is_used_before_it_owes_anything(alice: Person) -> None:
    give_credit(alice.tenant, "3")
    usage_capture([charge(alice.tenant, uuid4(), "5")], reference="b-1")
    assert account_of(alice.tenant).credit == 0
    assert balance(alice.tenant, Account.UNBILLED) == -2


def test_a_job_that_is_queued_again_gets_another_hold(prepaid: Tenant) -> None:
    first = place(prepaid, "4")
    assert place(prepaid, "4", first.job_id).pk == first.pk
    hold_release(job_id=first.job_id)
    assert place(prepaid, "4", first.job_id).pk != first.pk
    assert account_of(prepaid).held == 4


def test_usage_of_two_months_in_one_batch_is_kept_apart(alice: Person) -> None:
    june, job_id = dt.date(2026, 6, 1), uuid4()
    usage_capture([charge(alice.tenant, job_id, "1"), charge(alice.tenant, job_id, "2", june)], reference="b-1")
    with platform_scope():
        owed = LedgerEntry.objects.filter(account=Account.UNBILLED).order_by("period")
        assert list(owed.values_list("period", "amount")) == [(MAY, -1), (june, -2)]


def test_a_batch_of_many_tenants_takes_a_fixed_number_of_statements(db: None) -> None:
    def statements(count: int, reference: str) -> int:
        tenants = [TenantFactory() for _ in range(count)]
        charges = [charge(tenant, place(tenant, "1").job_id, "2") for tenant in tenants]
        for tenant in tenants:
            give_credit(tenant, "1")
        with CaptureQueriesContext(
            connection,
        ) as queries:
            usage_capture(charges, reference=reference)
        return len(queries)

    assert statements(3, "few") == statements(20, "many")


@pytest.mark.django_db(transaction=True)
def test_of_eight_at_once_the_credit_for_one_admits_one(prepaid: Tenant) -> None:
    def attempt(_: int) -> str:
        try:
            place(prepaid, "6")
            return "admitted"
        except ApplicationError as error:
            return error.code
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(attempt, range(8)))
    assert answers == ["admitted"] + 7 * ["insufficient_credit"]
    assert (account_of(prepaid).credit, account_of(prepaid).held) == (4, 6)


@pytest.mark.django_db(transaction=True)
def test_of_eight_releases_at_once_one_gives_the_money_back(prepaid: Tenant) -> None:
    job_id = place(prepaid, "6").job_id

    def attempt(_: int) -> bool:
        try:
            return hold_release(job_id=job_id) is not None
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1
    assert (account_of(prepaid).credit, account_of(prepaid).held) == (10, 0)
