"""Running sums say exactly what the events say, and answer what caps, budgets and pages ask."""

from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenants.billing.models import NO_JOB, PriorityFactor, RatedUsage, UsageRollup
from tenants.billing.prices.plans import PricePlan
from tenants.billing.usage.running_sums import sums_add
from tenants.billing.usage.selectors import (
    Spending,
    job_cost,
    job_costs,
    spending_of,
    spent,
    spent_of_job,
    spent_of_key,
    tenant_cost,
)
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import moment
from tests.support.story import Person
from tests.support.usage import close_month, set_price, tell, work

pytestmark = pytest.mark.django_db

MAY, JUNE = date(2026, 5, 1), date(2026, 6, 1)
JOBS = [UUID(int=n) for n in range(1, 4)]
REDONE = {"billable": False, "reason": "redone_after_restart"}

EVENTS = st.lists(
    st.tuples(
        st.booleans(),  # Alice's or Charlie's
        st.sampled_from(JOBS),
        st.sampled_from(["train.samples", "train.compute_us", "env.steps"]),
        st.integers(0, 10**7),
        st.integers(0, 60),  # days after May 1
        st.sampled_from([{}, REDONE, {"billable": False, "reason": "step_failed"}, {"billable": False}]),
        st.integers(0, 9),  # priority
        st.integers(0, 3),  # batch
    ),
    max_size=25,
)


def rollups() -> Counter[tuple[object, ...]]:
    with platform_scope():
        rows = UsageRollup.objects.values_list(
            "tenant_id", "period", "day", "job_id", "meter", "reason", "quantity", "amount", "currency"
        )
        return Counter(rows)


def added_up() -> Counter[tuple[object, ...]]:
    """The same from the events, one by one."""
    sums: dict[tuple[object, ...], tuple[int, Decimal]] = {}
    with platform_scope():
        for rated in RatedUsage.objects.select_related("event"):
            event = rated.event
            reason = "" if event.billable else (event.reason or "not_billable")
            day = event.occurred_at.date()
            key = (event.tenant_id, rated.period, day, event.job_id, event.meter, reason, rated.currency)
            units, money = sums.get(key, (0, Decimal(0)))
            sums[key] = (units + event.quantity, money + rated.amount)
    return Counter((*key[:-1], *value, key[-1]) for key, value in sums.items())


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(events=EVENTS, closing=st.integers(0, 3))
def test_running_sums_are_the_sums_of_the_events(
    alice: Person, charlie: Person, events: list[tuple[object, ...]], closing: int
) -> None:
    with transaction.atomic():
        check_sums(alice.tenant, charlie.tenant, events, closing)
        transaction.set_rollback(True)


def check_sums(own: Tenant, other: Tenant, events: list[tuple[object, ...]], closing: int) -> None:
    set_price("env.steps", "0.0000007", per=3, valid_from=moment("2026-05-10T00:00:00"), shape="package")
    factor = {"priority": 9, "permille": 1333, "valid_from": moment("2026-05-20T00:00:00")}
    PriorityFactor.objects.create(plan=PricePlan.objects.get(code="standard"), **factor)
    for batch in range(4):
        if batch == closing:
            close_month(own, MAY)
        tell(
            *(
                work(
                    own if is_own else other,
                    job_id=job_id,
                    lines={meter: quantity},
                    occurred_at=moment("2026-05-01T07:00:00") + timedelta(days=days),
                    priority=priority,
                    **free,
                )
                for is_own, job_id, meter, quantity, days, free, priority, wanted in events
                if wanted == batch
            )
        )
    assert rollups() == added_up()
    for tenant in (own, other):
        by_jobs = sum((cost.amount for cost in job_costs(tenant, JOBS).values()), Decimal(0))
        months = sum((spent(tenant, month=month) for month in (MAY, JUNE)), Decimal(0))
        assert tenant_cost(tenant).amount == by_jobs == months
        assert by_jobs == sum(spent_of_job(tenant, job) for job in JOBS)


@pytest.fixture
def used(alice: Person, charlie: Person) -> dict[str, UUID]:
    """Of Alice's two jobs, one was submitted with a key; Charlie has the same job id by chance."""
    key, project = uuid4(), uuid4()
    redone = {"train.samples": 50, "train.compute_us": 7}
    tell(
        work(
            alice.tenant,
            job_id=JOBS[0],
            lines={"train.samples": 1_000, "train.compute_us": 600, "predict.compute_us": 30, "env.compute_us": 1},
            key_id=key,
            project_id=project,
        ),
        work(alice.tenant, job_id=JOBS[0], lines=redone, key_id=key, project_id=project, **REDONE),
        work(alice.tenant, job_id=JOBS[1], lines={"train.samples": 2_000}, occurred_at=moment("2026-06-03T00:00:00")),
        work(charlie.tenant, job_id=JOBS[0], lines={"train.samples": 8_000}),
    )
    return {"key": key, "project": project}


def test_money_is_read_by_month_project_key_and_job(alice: Person, charlie: Person, used: dict[str, UUID]) -> None:
    first = job_cost(alice.tenant, JOBS[0]).amount
    assert first == Decimal("0.05") + 630 * Decimal("0.0000000003") + Decimal("0.00000000003")
    assert spent(alice.tenant, month=MAY) == spent(alice.tenant.pk, month=MAY) == first
    assert spent(alice.tenant, month=JUNE) == Decimal("0.1")
    assert spent(alice.tenant, month=MAY, project=used["project"]) == spent_of_key(alice.tenant, used["key"]) == first
    assert spent(alice.tenant, month=JUNE, project=used["project"]) == 0
    assert [spent_of_job(alice.tenant, job) for job in JOBS] == [first, Decimal("0.1"), 0]
    assert spent_of_key(charlie.tenant, used["key"]) == 0


def test_spending_of_jobs_of_many_tenants_is_one_query(alice: Person, charlie: Person, used: dict[str, UUID]) -> None:
    asked = [(alice.tenant.pk, JOBS[0]), (charlie.tenant.pk, JOBS[0]), (charlie.tenant.pk, JOBS[1])]
    with CaptureQueriesContext(connection) as queries:
        found = spending_of(asked)
    assert len(queries) == 1
    assert found == {
        asked[0]: Spending(amount=job_cost(alice.tenant, JOBS[0]).amount, compute_us=631),
        asked[1]: Spending(amount=Decimal("0.4"), compute_us=0),
        asked[2]: Spending(amount=Decimal(0), compute_us=0),
    }


def test_costs_of_part_of_a_day_are_refused_and_not_guessed(alice: Person) -> None:
    with pytest.raises(ValueError, match="not midnight"):
        tenant_cost(alice.tenant, since=moment("2026-05-01T00:00:01"))


def test_free_work_without_a_reason_is_still_told_apart_from_billed_work(alice: Person) -> None:
    tell(work(alice.tenant, samples=5, billable=False), work(alice.tenant, samples=7))
    (line,) = tenant_cost(alice.tenant).lines
    assert (line.quantity, [(part.reason, part.quantity) for part in line.free]) == (12, [("not_billable", 5)])


def test_reading_costs_looks_at_sums_and_never_at_events(alice: Person, used: dict[str, UUID]) -> None:
    with CaptureQueriesContext(connection) as queries:
        job_costs(alice.tenant, JOBS)
        tenant_cost(alice.tenant)
        spent(alice.tenant, month=MAY)
        spent_of_job(alice.tenant, JOBS[0])
    assert len(queries) == 4
    assert not any("billing_usageevent" in query["sql"] or "billing_ratedusage" in query["sql"] for query in queries)


def test_sums_are_exact_beyond_what_a_float_holds(alice: Person) -> None:
    fields = {"tenant": alice.tenant, "period": MAY, "day": MAY, "job_id": NO_JOB, "meter": "train.samples"}

    def add(quantity: int, amount: str) -> None:
        row = UsageRollup(**fields, quantity=quantity, amount=Decimal(amount), currency="EUR")
        unique = ("tenant", "period", "day", "job_id", "meter", "reason")
        sums_add([row], unique=unique, sums=("quantity", "amount"))

    add(2**53, "9000.000000000001")
    add(1, "0.000000000001")
    with platform_scope():
        row = UsageRollup.objects.get()
    assert (row.quantity, row.amount) == (2**53 + 1, Decimal("9000.000000000002"))
    sums_add([], unique=("tenant",), sums=("amount",))
