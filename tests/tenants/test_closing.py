"""The periodic closing: every tenant's due months, each once, and drafts of the months still open."""

import datetime as dt
from threading import Barrier, Thread
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.db import connection

from tenants.billing import tasks
from tenants.billing.invoices.closing import months_close, tenants_with_open_months
from tenants.billing.models import BillingPeriod, Invoice
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import TenantFactory, moment
from tests.support.invoices import AFTER_JUNE, AFTER_MAY, JUNE, MAY, use
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _old_tenants(story: Any) -> None:
    """Everybody was there in spring."""
    Tenant.objects.update(created_at=moment("2026-03-01T00:00:00"))


def invoices() -> list[tuple[str, dt.date, str]]:
    with platform_scope():
        rows = Invoice.objects.order_by("period_start", "tenant__name")
        return list(rows.values_list("tenant__name", "period_start", "state"))


def close_all(now: dt.datetime) -> int:
    return months_close(tenants_with_open_months(now), now=now)


def test_due_months_are_closed_and_the_others_drafted(alice: Person, charlie: Person) -> None:
    use(alice.tenant, 100_000)
    use(charlie.tenant, 100_000)
    use(charlie.tenant, 100_000, at="2026-06-01T00:00:00")
    close_all(AFTER_MAY)
    expected = [("Alice's lab", MAY, "final"), ("Charlie's lab", MAY, "final"), ("Charlie's lab", JUNE, "draft")]
    assert invoices() == expected
    close_all(AFTER_MAY)
    assert invoices() == expected
    close_all(AFTER_JUNE)
    assert invoices()[2] == ("Charlie's lab", JUNE, "final")


def test_a_month_nobody_used_is_closed_too(alice: Person) -> None:
    close_all(AFTER_MAY)
    with platform_scope():
        assert BillingPeriod.objects.get(tenant=alice.tenant).closed_at == AFTER_MAY
    assert tenants_with_open_months(AFTER_MAY) == []
    assert invoices() == []


def test_a_tenant_that_came_later_has_nothing_to_close(alice: Person, charlie: Person) -> None:
    Tenant.objects.filter(pk=alice.tenant.pk).update(created_at=AFTER_MAY)
    assert tenants_with_open_months(AFTER_MAY) == [charlie.tenant.pk]


def test_one_tenants_trouble_is_not_anothers(alice: Person, charlie: Person, caplog: pytest.LogCaptureFixture) -> None:
    use(alice.tenant, 100_000)
    use(charlie.tenant, 100_000)
    Tenant.objects.filter(pk=alice.tenant.pk).update(currency="XXX")  # nobody knows how to round it
    close_all(AFTER_MAY)
    assert invoices() == [("Charlie's lab", MAY, "final")]
    assert f"2026-05 of tenant {alice.tenant.pk} cannot be closed" in caplog.text
    Tenant.objects.filter(pk=alice.tenant.pk).update(currency="EUR")
    close_all(AFTER_MAY)
    assert len(invoices()) == 2


def test_a_worker_out_of_time_stops_and_the_next_run_does_the_rest(
    alice: Person, charlie: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(alice.tenant, 100_000)
    use(charlie.tenant, 100_000)

    def out_of_time(**_: Any) -> None:
        raise SoftTimeLimitExceeded

    with monkeypatch.context() as patch:
        patch.setattr("tenants.billing.invoices.closing.invoice_finalize", out_of_time)
        with pytest.raises(SoftTimeLimitExceeded):
            close_all(AFTER_MAY)
    close_all(AFTER_MAY)
    assert len(invoices()) == 2


def test_the_task_hands_out_few_tenants_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(43):
        TenantFactory()
    Tenant.objects.update(created_at=moment("2026-03-01T00:00:00"))
    handed: list[list[str]] = []
    monkeypatch.setattr(tasks.invoices_close_some, "delay", handed.append)
    assert tasks.invoices_close() == 45  # Alice's and Charlie's too
    assert [len(some) for some in handed] == [20, 20, 5]
    assert tasks.invoices_close_some(handed[0]) == 20


@pytest.mark.django_db(transaction=True)
def test_four_workers_closing_everything_at_once_make_one_invoice_each(alice: Person, charlie: Person) -> None:
    others = [TenantFactory() for _ in range(4)]
    Tenant.objects.update(created_at=moment("2026-03-01T00:00:00"))
    for tenant in (alice.tenant, charlie.tenant, *others):
        use(tenant, 100_000)
    barrier = Barrier(4)

    def work() -> None:
        barrier.wait(timeout=30)
        close_all(AFTER_MAY)
        connection.close()

    workers = [Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with platform_scope():
        numbers = Invoice.objects.filter(period_start=MAY).order_by("number").values_list("number", "state")
        assert list(numbers) == [(f"2026-{n:06d}", "final") for n in range(1, 7)]
