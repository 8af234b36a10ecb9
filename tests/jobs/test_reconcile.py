"""The books agree; and whoever breaks them behind the code's back is found, by the check that is about it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from gpu_runtime.protocol.messages import SpanMeasured
from jobs import tasks
from jobs.models import Job
from jobs.services import reconcile
from jobs.services.reconcile import all_checks, reconcile_billing
from tenants import append_only
from tenants.audit.models import AuditEvent
from tenants.billing import frozen
from tenants.billing.invoices.corrections import Correction, credit_note_create, invoice_void
from tenants.billing.invoices.services import invoice_finalize
from tenants.billing.ledger.credits import credit_grant, mode_set, payment_record
from tenants.billing.models import Invoice, ReconciliationDifference, ReconciliationRun
from tenants.billing.reconcile import usage
from tenants.models import Tenant, User
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory, UserFactory
from tests.support.invoices import AFTER_JUNE, JUNE, close_may, use
from tests.support.jobs import make_job, relay_all, start_job
from tests.support.ledger import give_credit
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db
D = Decimal
EVENTS = ("update", "delete", "truncate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Two labs with a year's worth of everything that moves money."""

    alice: Tenant
    charlie: Tenant
    invoice: Invoice  # of Alice's May, corrected and paid
    job: Job  # Charlie's, live, with a hold that is partly captured


@pytest.fixture
def olga(db: None) -> User:
    """An operator."""
    return UserFactory(email="olga@example.org", is_staff=True)


@pytest.fixture
def books(alice: Person, charlie: Person, olga: User, runtime: InMemoryRuntime) -> Books:
    lab = ProjectFactory(tenant=alice.tenant, name="Lab")
    give_credit(alice.tenant, "1.5")
    use(alice.tenant, 100_033, project_id=lab.pk)
    use(alice.tenant, 777, billable=False, reason="step_failed")
    use(alice.tenant, 1_000, at="2026-06-01T00:00:00")
    invoice = close_may(alice.tenant)
    use(alice.tenant, 3_333)  # late
    lines = [Correction(description="our fault", amount=D(1))]
    credit_note_create(by=olga, invoice=invoice, reason="our fault", lines=lines)
    payment_record(by=olga, tenant=alice.tenant, amount=D("2.50"), reference="bank-1", invoice=invoice)
    june = invoice_finalize(by=None, tenant=alice.tenant, month=JUNE, now=AFTER_JUNE)
    assert june is not None
    invoice_void(by=olga, invoice=june, reason="wrong address")
    invoice_finalize(by=None, tenant=alice.tenant, month=JUNE, now=AFTER_JUNE)
    mode_set(by=olga, tenant=charlie.tenant, mode="prepaid")
    credit_grant(by=olga, tenant=charlie.tenant, amount=D(1000), reason="welcome", reference="g-1")
    make_job(charlie)
    job, key = start_job(charlie, runtime)
    runtime.train_step([key], 1, busy_us=1_000)
    relay_all(runtime)
    return Books(alice=alice.tenant, charlie=charlie.tenant, invoice=invoice, job=job)


@pytest.fixture
def raw() -> Iterator[Any]:
    """A cursor to which no trigger objects. The test's transaction puts the triggers back."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        names = [(table, f"{table}_refuses_{event}") for table in append_only.tables() for event in EVENTS]
        names += [(table, f"{table}_frozen_{event}") for table in (frozen.INVOICES, frozen.LINES) for event in EVENTS]
        for table, name in names:
            on = f" ON {table}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{on}")
        yield cursor


def found() -> dict[str, list[tuple[str, str, str]]]:
    """What a run wrote down, by check: (subject, expected, found)."""
    run = reconcile_billing()
    with platform_scope():
        rows = ReconciliationDifference.objects.filter(run=run).order_by("pk")
        by_check: dict[str, list[tuple[str, str, str]]] = {}
        for row in rows:
            by_check.setdefault(row.check_name, []).append((row.subject, row.expected, row.found))
    return by_check


def test_the_books_of_a_busy_year_agree_in_every_check(books: Books) -> None:
    assert found() == {}
    run = ReconciliationRun.objects.get()
    assert run.difference_count == 0
    assert run.finished_at is not None
    assert set(run.figures) == set(all_checks())
    assert all(figures["compared"] > 0 for figures in run.figures.values())


_ONE_RATING = "SELECT MIN(id) FROM billing_ratedusage WHERE amount > 0"
_FINAL = "state = 'final' AND kind = 'invoice'"
_FINAL_LINE = (
    "SELECT MIN(id) FROM billing_invoiceline WHERE kind = 'usage' AND invoice_id IN "
    f"(SELECT id FROM billing_invoice WHERE {_FINAL})"
)
_ONE_FINAL = f"SELECT id FROM billing_invoice WHERE {_FINAL} ORDER BY number LIMIT 1"

VIOLATIONS: dict[str, tuple[str, set[str]]] = {
    # name: (statement, checks that must find it and no others)
    "a rating is deleted": (
        f"DELETE FROM billing_ratedusage WHERE id = ({_ONE_RATING})",
        {"every_event_is_rated", "running_sums_are_the_ratings"},
    ),
    "a rating is moved to another job": (
        f"UPDATE billing_ratedusage SET job_id = (SELECT id FROM jobs_job LIMIT 1) WHERE id = ({_ONE_RATING})",
        {"every_event_is_rated", "running_sums_are_the_ratings"},
    ),
    "free work is charged": (
        "UPDATE billing_ratedusage SET amount = 7 WHERE event_id IN "
        "(SELECT id FROM billing_usageevent WHERE NOT billable)",
        {"free_work_costs_nothing", "running_sums_are_the_ratings"},
    ),
    "a rating is raised by a millionth of a millionth": (
        f"UPDATE billing_ratedusage SET amount = amount + 1 WHERE id = ({_ONE_RATING})",
        {"running_sums_are_the_ratings"},
    ),
    "an event is made larger": (
        "UPDATE billing_usageevent SET quantity = quantity + 1 WHERE id = (SELECT MIN(id) FROM billing_usageevent)",
        {"running_sums_are_the_ratings"},
    ),
    "a running sum of this month is lost": (
        "DELETE FROM billing_usagerollup WHERE id = "
        "(SELECT MAX(id) FROM billing_usagerollup WHERE meter = 'train.samples')",
        {"running_sums_are_the_ratings", "meter_totals_are_the_billed_units", "usage_is_booked"},
    ),
    "a meter's total is turned back": (
        "UPDATE billing_metertotal SET quantity = quantity - 1 WHERE id = (SELECT MIN(id) FROM billing_metertotal)",
        {"meter_totals_are_the_billed_units"},
    ),
    "an entry of revenue is raised": (
        "UPDATE billing_ledgerentry SET amount = amount + 1 WHERE id = "
        "(SELECT MIN(id) FROM billing_ledgerentry WHERE account = 'revenue')",
        {"movements_sum_to_zero", "usage_is_booked"},
    ),
    "a movement loses its entries": (
        "DELETE FROM billing_ledgerentry WHERE transaction_id = "
        "(SELECT transaction_id FROM billing_ledgerentry WHERE account = 'cash' LIMIT 1)",
        {"movements_sum_to_zero", "invoices_are_booked"},
    ),
    "a balance is raised": (
        "UPDATE billing_billingaccount SET credit = credit + 1000000000000 WHERE mode = 'prepaid'",
        {"balances_are_the_entries"},
    ),
    "money of a hold is given to another job": (
        "UPDATE billing_hold SET captured_funds = captured_funds + 1, captured = captured + 1 "
        "WHERE id = (SELECT MIN(id) FROM billing_hold WHERE funded > 0)",
        {"holds_are_booked"},
    ),
    "a released hold keeps its money": (
        "UPDATE billing_hold SET released_at = '2026-11-01 00:00:00+00:00' "
        "WHERE id = (SELECT MIN(id) FROM billing_hold WHERE funded > captured_funds)",
        {"holds_are_booked"},
    ),
    "a line of a final invoice is made cheaper": (
        f"UPDATE billing_invoiceline SET amount = amount - 10000000000 WHERE id = ({_FINAL_LINE})",
        {"totals_are_the_lines"},
    ),
    "units of a final invoice's line are changed": (
        f"UPDATE billing_invoiceline SET quantity = quantity + 1 WHERE id = ({_FINAL_LINE})",
        {"lines_are_the_usage"},
    ),
    "a final invoice's total is lowered": (
        f"UPDATE billing_invoice SET total = total - 10000000000 WHERE id = ({_ONE_FINAL})",
        {"totals_are_the_lines", "invoices_are_booked"},
    ),
    "a closed month is opened again": (
        "UPDATE billing_billingperiod SET closed_at = NULL WHERE start = '2026-05-01'",
        {"closed_months_are_billed"},
    ),
    "a month is closed without its invoice": (
        "UPDATE billing_billingperiod SET closed_at = '2026-11-01 00:00:00+00:00' WHERE closed_at IS NULL AND EXISTS "
        "(SELECT 1 FROM billing_usagerollup u WHERE u.period = billing_billingperiod.start "
        "AND u.tenant_id = billing_billingperiod.tenant_id)",
        {"closed_months_are_billed"},
    ),
    "a paid invoice is unpaid": (
        f"UPDATE billing_invoice SET paid_at = NULL WHERE {_FINAL} AND paid_at IS NOT NULL",
        {"invoices_are_booked"},
    ),
    "a credit note takes back more than the invoice": (
        "UPDATE billing_invoice SET total = -900000000000000 WHERE kind = 'credit_note'",
        {"totals_are_the_lines", "corrections_fit_their_invoice"},
    ),
    "a number is skipped": (
        "UPDATE billing_invoicesequence SET last = last + 1",
        {"numbers_have_no_gap"},
    ),
    "stored bytes are forgotten": (
        "INSERT INTO quotas_storageaccount (tenant_id, used_bytes, reserved_bytes, accrued_at, byte_s) "
        "SELECT id, 5, 0, '2026-11-01 00:00:00+00:00', 0 FROM tenants_tenant WHERE name = 'Charlie''s lab'",
        {"stored_bytes_are_the_files"},
    ),
    "measured time is doubled": (
        "UPDATE jobs_devicespan SET busy_us = busy_us + 1",
        {"measured_time_is_metered"},
    ),
    "a job ends and keeps its hold": (
        "UPDATE jobs_job SET state = 'failed' WHERE state = 'queued'",
        {"holds_have_live_jobs"},
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_planted_violation_is_found_by_its_check_and_by_no_other(name: str, books: Books, raw: Any) -> None:
    statement, checks = VIOLATIONS[name]
    raw.execute(statement)
    assert raw.rowcount >= 1
    assert set(found()) == checks


def test_every_check_has_a_planted_violation() -> None:
    assert {check for _, checks in VIOLATIONS.values() for check in checks} == set(all_checks())


def test_a_difference_names_its_tenant_subject_and_both_figures(books: Books, raw: Any) -> None:
    raw.execute("UPDATE billing_billingaccount SET credit = credit + 1 WHERE mode = 'prepaid'")
    reconcile_billing()
    with platform_scope():
        row = ReconciliationDifference.objects.get()
        credit = D(row.expected)
    assert (row.tenant_id, row.subject) == (books.charlie.pk, "credit")
    assert D(row.found) - credit == D("0.000000000001")
    assert row.seen_at is None


def test_a_difference_is_an_alert(books: Books, raw: Any, caplog: pytest.LogCaptureFixture) -> None:
    raw.execute("UPDATE billing_invoicesequence SET last = last + 1")
    run = reconcile_billing()
    assert f"reconciliation {run.pk} found 1 differences in numbers_have_no_gap" in caplog.text
    assert caplog.records[-1].levelname == "ERROR"


def test_a_check_that_cannot_run_is_a_difference(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("no such column")

    monkeypatch.setattr(reconcile, "CHECKS", {"totals_are_the_lines": broken})
    assert found() == {"totals_are_the_lines": [("the check cannot run", "a result", "RuntimeError: no such column")]}


def test_an_operators_run_is_written_down_and_the_nightly_one_says_so(books: Books, olga: User) -> None:
    assert reconcile_billing(by=olga).by == "olga@example.org"
    assert reconcile_billing().by == "nightly"
    with platform_scope():
        assert AuditEvent.objects.filter(verb="billing.reconciled").count() == 1


def test_time_of_a_tenant_nobody_knows_is_found(books: Books, runtime: InMemoryRuntime) -> None:
    span = {"service": "training", "started_at_us": runtime.now_us, "group_size": 1, "samples": 1, "tokens": 1}
    runtime.tell(None, None, SpanMeasured(span_id="x", busy_us=5, overhead_us=0, shares={"nobody": 5}, **span))
    relay_all(runtime)
    rows = found()["measured_time_is_metered"]
    assert rows == [("training of nobody, metered minus measured", "0 us", "-5 us")]


def found_while_usage_comes_in(alice: Person, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Checks with differences when usage comes in, on another connection, between the two sides of one of them."""

    def more() -> None:
        use(alice.tenant, 1_000, at=timezone.now().replace(tzinfo=None).isoformat())
        connection.close()

    def interrupted(rows: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(more).result()
        return by_key(rows)

    by_key = usage._by_key
    monkeypatch.setattr(usage, "_by_key", interrupted)
    use(alice.tenant, 1_000)
    return list(found())


@pytest.mark.django_db(transaction=True)
def test_a_run_sees_one_moment_while_usage_goes_on(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_while_usage_comes_in(alice, monkeypatch) == []


@pytest.mark.django_db(transaction=True)
def test_without_the_snapshot_it_would_not(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_snapshot", nullcontext)
    assert "running_sums_are_the_ratings" in found_while_usage_comes_in(alice, monkeypatch)


def test_the_nightly_task_is_in_the_schedule_and_leaves_a_run(books: Books, settings: Any) -> None:
    entry = settings.CELERY_BEAT_SCHEDULE["reconcile_books"]
    assert entry["task"] == tasks.reconcile_books.name
    assert tasks.reconcile_books() == 0
    assert ReconciliationRun.objects.get().by == "nightly"
