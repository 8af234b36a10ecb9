"""A month becomes an invoice once: lines rounded once, their sum the total, nothing lost between two months."""

import datetime as dt
from decimal import Decimal
from uuid import uuid4

import pytest

from gpu_runtime.protocol.messages import UsageLine
from tenants.audit.models import AuditEvent
from tenants.billing.invoices.services import invoice_draft, invoice_finalize
from tenants.billing.ledger.books import account_of, outstanding
from tenants.billing.ledger.holds import hold_place
from tenants.billing.models import NO_JOB, Account, BillingMode, Invoice, InvoiceState, UsageRollup
from tenants.errors import ApplicationError
from tenants.models import Project, Tenant
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory, moment
from tests.support.invoices import AFTER_JUNE, AFTER_MAY, JUNE, MAY, close_may, lines_of, shown, use
from tests.support.ledger import balance, give_credit, set_mode
from tests.support.prices import complete_plan
from tests.support.story import Person
from tests.support.usage import put_on_plan

pytestmark = pytest.mark.django_db
D = Decimal


def test_a_draft_follows_the_usage_of_its_month(alice: Person) -> None:
    assert invoice_draft(tenant=alice.tenant, month=MAY) is None
    use(alice.tenant, 1_000)
    first = invoice_draft(tenant=alice.tenant, month=MAY)
    assert first is not None
    assert (first.total, first.number, first.state) == (D("0.05"), None, "draft")
    use(alice.tenant, 1_000)
    second = invoice_draft(tenant=alice.tenant, month=MAY)
    assert second is not None
    assert (second.pk, second.total) == (first.pk, D("0.10"))
    assert balance(alice.tenant, Account.RECEIVABLE) == 0  # nobody owes a draft


def test_a_final_invoice_is_numbered_owed_and_frozen(alice: Person) -> None:
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    assert (invoice.number, invoice.total, invoice.state) == ("2026-000001", D("5.00"), "final")
    assert outstanding(invoice) == 5
    assert balance(alice.tenant, Account.UNBILLED) == 0
    use(alice.tenant, 100_000, at="2026-05-20T00:00:00")  # late: not on this one
    again = close_may(alice.tenant)
    assert (again.pk, again.total) == (invoice.pk, D("5.00"))
    assert invoice_draft(tenant=alice.tenant, month=MAY) == invoice


def test_a_month_is_not_closed_before_its_grace_is_over(alice: Person) -> None:
    use(alice.tenant, 1_000)
    with pytest.raises(ApplicationError, match="late usage is awaited"):
        invoice_finalize(by=None, tenant=alice.tenant, month=MAY, now=AFTER_MAY - dt.timedelta(microseconds=1))


def test_every_line_is_rounded_once_and_the_total_is_the_sum_of_what_is_shown(alice: Person) -> None:
    lab = ProjectFactory(tenant=alice.tenant, name="Lab")
    use(alice.tenant, 100)  # 0.005, in three pieces that would round to nothing each
    use(alice.tenant, 100, project_id=lab.pk)  # 0.005
    use(alice.tenant, 98, project_id=lab.pk)  # with it 0.0099
    use(alice.tenant, 98, at="2026-05-11T00:00:00", project_id=None)  # with the first 0.0099
    invoice = close_may(alice.tenant)
    assert shown(invoice) == [("Training samples", D("0.01")), ("Training samples, Lab", D("0.01"))]
    assert [line.exact for line in lines_of(invoice)] == [D("0.0099"), D("0.0099")]
    assert invoice.total == D("0.02")
    assert balance(alice.tenant, Account.ROUNDING) == D("0.0002")
    assert balance(alice.tenant, Account.RECEIVABLE) == D("-0.02")
    assert balance(alice.tenant, Account.REVENUE) == D("0.0198")


@pytest.mark.parametrize(("samples", "amount"), [(99, "0.00"), (100, "0.01"), (299, "0.01"), (300, "0.02")])
def test_half_a_cent_is_rounded_up(alice: Person, samples: int, amount: str) -> None:
    use(alice.tenant, samples)
    assert close_may(alice.tenant).total == D(amount)


def test_late_usage_is_on_the_next_open_invoice_and_says_so(alice: Person) -> None:
    use(alice.tenant, 20_000)
    close_may(alice.tenant)
    use(alice.tenant, 60_000, at="2026-06-02T00:00:00")
    use(alice.tenant, 40_000, at="2026-05-31T23:59:59")
    june = invoice_finalize(by=None, tenant=alice.tenant, month=JUNE, now=AFTER_JUNE)
    assert june is not None
    assert shown(june) == [("Training samples", D("3.00")), ("Training samples (late usage of 2026-05)", D("2.00"))]
    assert balance(alice.tenant, Account.UNBILLED) == 0


def test_a_month_without_usage_is_closed_without_an_invoice(alice: Person) -> None:
    assert invoice_finalize(by=None, tenant=alice.tenant, month=MAY, now=AFTER_MAY) is None
    use(alice.tenant, 20_000)  # months late
    with platform_scope():
        assert UsageRollup.objects.get().period > MAY


def test_free_work_is_shown_and_costs_nothing(alice: Person) -> None:
    use(alice.tenant, 7_000)
    use(alice.tenant, 3_000, billable=False, reason="redone_after_restart")
    line = lines_of(close_may(alice.tenant))[0]
    assert (line.quantity, line.free_quantity, line.amount) == (7_000, 3_000, D("0.35"))


def test_credit_is_used_first_and_shown_as_a_negative_line(alice: Person) -> None:
    give_credit(alice.tenant, "2")
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    assert shown(invoice) == [("Training samples", D(5)), ("Credit used by the jobs", D(-2))]
    assert invoice.total == outstanding(invoice) == 3
    assert account_of(alice.tenant).credit == 0


def test_credit_that_came_after_the_usage_pays_too(alice: Person) -> None:
    use(alice.tenant, 100_000)
    give_credit(alice.tenant, "2.509")
    invoice = close_may(alice.tenant)
    assert shown(invoice)[1] == ("Credit used for the rest", D("-2.50"))
    assert invoice.total == D("2.50")
    assert account_of(alice.tenant).credit == D("0.009")  # no coin is that small
    assert balance(alice.tenant, Account.UNBILLED) == 0


def test_a_negative_line_is_rounded_like_any_other_half_away_from_zero(alice: Person) -> None:
    give_credit(alice.tenant, "0.005")
    use(alice.tenant, 500)
    invoice = close_may(alice.tenant)
    assert shown(invoice) == [("Training samples", D("0.03")), ("Credit used by the jobs", D("-0.01"))]
    assert (invoice.total, balance(alice.tenant, Account.ROUNDING)) == (D("0.02"), 0)


def test_a_bill_in_yen_has_whole_yen(alice: Person) -> None:
    Tenant.objects.filter(pk=alice.tenant.pk).update(currency="JPY")
    alice.tenant.refresh_from_db()
    since = moment("2026-01-01T00:00:00")
    put_on_plan(alice.tenant, complete_plan("yen", currency="JPY", since=since, amount="0.5"), since=since)
    use(alice.tenant, 101)
    give_credit(alice.tenant, "7.9")
    invoice = close_may(alice.tenant)
    assert shown(invoice) == [("Training samples", D(51)), ("Credit used for the rest", D(-7))]
    assert (invoice.total, invoice.currency, outstanding(invoice)) == (44, "JPY", 44)
    assert balance(alice.tenant, Account.ROUNDING) == D("0.5")


def test_storage_without_a_job_is_a_line_of_its_own_and_takes_credit_like_all_usage(alice: Person) -> None:
    give_credit(alice.tenant, "0.01")
    stored = (UsageLine(meter="storage.byte_hours", quantity=10**12),)
    use(alice.tenant, 0, lines=stored, job_id=NO_JOB, source="storage")
    invoice = close_may(alice.tenant)
    assert shown(invoice) == [("Storage", D("0.03")), ("Credit used by the jobs", D("-0.01"))]
    assert lines_of(invoice)[0].project_id is None


def test_an_invoice_keeps_the_name_a_project_had_and_an_archived_one_is_billed_on(alice: Person) -> None:
    lab = ProjectFactory(tenant=alice.tenant, name="Lab")
    use(alice.tenant, 1_000, project_id=lab.pk)
    use(alice.tenant, 1_000, project_id=lab.pk, at="2026-06-10T00:00:00")
    may = close_may(alice.tenant)
    with platform_scope():
        Project.objects.filter(pk=lab.pk).update(name="Kitchen", archived_at=AFTER_MAY)
    june = invoice_finalize(by=None, tenant=alice.tenant, month=JUNE, now=AFTER_JUNE)
    assert june is not None
    assert close_may(alice.tenant) == may
    assert shown(may) == [("Training samples, Lab", D("0.05"))]
    assert shown(june) == [("Training samples, Kitchen", D("0.05"))]


def test_what_prepaid_credit_paid_for_leaves_nothing_to_pay_not_even_a_cent(alice: Person) -> None:
    set_mode(alice.tenant, BillingMode.PREPAID)
    give_credit(alice.tenant, "10")
    lab, job_id = ProjectFactory(tenant=alice.tenant, name="Lab"), uuid4()
    hold_place(tenant=alice.tenant, job_id=job_id, project_id=None, key_id=None, amount=D(3))
    use(alice.tenant, 100, job_id=job_id)
    use(alice.tenant, 100, project_id=lab.pk)  # two half cents, shown as one each: 0.02 for 0.01
    invoice = close_may(alice.tenant)
    assert invoice.total == 0
    assert shown(invoice)[2] == ("Credit used by the jobs", D("-0.02"))
    assert invoice.paid_at == AFTER_MAY
    assert account_of(alice.tenant).credit + account_of(alice.tenant).held == D("9.99")
    assert balance(alice.tenant, Account.UNBILLED) == balance(alice.tenant, Account.ROUNDING) == 0


def test_numbers_have_no_gaps_and_begin_anew_every_year(alice: Person, charlie: Person) -> None:
    use(alice.tenant, 1_000)
    use(alice.tenant, 1_000, at="2026-06-10T00:00:00")
    use(charlie.tenant, 1_000)
    close_may(alice.tenant)
    with pytest.raises(ApplicationError):
        invoice_finalize(by=None, tenant=alice.tenant, month=JUNE, now=AFTER_MAY)
    close_may(charlie.tenant)
    invoice_finalize(by=None, tenant=alice.tenant, month=JUNE, now=AFTER_JUNE.replace(year=2027))
    with platform_scope():
        numbers = Invoice.objects.filter(state=InvoiceState.FINAL).order_by("number").values_list("number", flat=True)
        assert list(numbers) == ["2026-000001", "2026-000002", "2027-000001"]


def test_closing_is_written_down(alice: Person) -> None:
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    with platform_scope():
        act = AuditEvent.objects.get(verb="invoice.finalized")
    assert (act.object_id, act.actor_kind, act.tenant_id) == (str(invoice.pk), "system", alice.tenant.pk)
    assert act.after is not None
    assert act.after["total"] == "5.00"
