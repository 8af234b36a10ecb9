"""Invoices, balance and ledger as a tenant reads them."""

import csv
import io
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tenants.billing.invoices.corrections import Correction, credit_note_create
from tenants.billing.invoices.services import invoice_draft
from tenants.billing.ledger.books import Entry, move
from tenants.billing.ledger.holds import hold_place
from tenants.billing.models import Account, BillingMode, LedgerKind
from tests.support.factories import ProjectFactory
from tests.support.invoices import JUNE, close_may, use
from tests.support.ledger import give_credit, set_mode
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def content_of(answer: Any) -> bytes:
    async def read() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(read)()


def rows_of(answer: Any) -> list[dict[str, str]]:
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(content_of(answer).decode())))


def test_an_invoice_is_read_with_its_lines_and_adds_up(alice: Person) -> None:
    lab = ProjectFactory(tenant=alice.tenant, slug="lab", name="Lab")
    give_credit(alice.tenant, "1")
    use(alice.tenant, 100_000, project_id=lab.pk)
    invoice = close_may(alice.tenant)
    told = alice.api.get(f"/api/v1/invoices/{invoice.pk}").json()
    assert (told["number"], told["state"], told["period_start"]) == ("2026-000001", "final", "2026-05-01")
    assert told["total"] == told["due"] == {"amount": "4.00", "currency": "EUR"}
    assert [(line["project"], line["quantity"], line["amount"]["amount"]) for line in told["lines"]] == [
        ("lab", 100_000, "5.00"),
        (None, 0, "-1.00"),
    ]


def test_the_list_shows_newest_first_and_filters_by_state(alice: Person) -> None:
    use(alice.tenant, 1_000)
    use(alice.tenant, 1_000, at="2026-06-10T00:00:00")
    close_may(alice.tenant)
    invoice_draft(tenant=alice.tenant, month=JUNE)
    rows = alice.api.get("/api/v1/invoices").json()["results"]
    assert [(row["period_start"], row["state"]) for row in rows] == [("2026-06-01", "draft"), ("2026-05-01", "final")]
    assert [row["state"] for row in alice.api.get("/api/v1/invoices?state=final").json()["results"]] == ["final"]
    assert alice.api.get("/api/v1/invoices?state=paid").status_code == 422


@pytest.mark.parametrize("path", ["/api/v1/invoices", "/api/v1/ledger"])
def test_a_long_list_takes_as_many_queries_as_a_short_one(alice: Person, path: str) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert alice.api.get(path).status_code == 200
        return len(queries)

    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    count()  # the first use of a key in a while is written down
    few = count()
    for _ in range(5):
        lines = [Correction(description="x", amount=Decimal("0.10"))]
        credit_note_create(by=alice.user, invoice=invoice, reason="x", lines=lines)
    assert count() == few


def test_the_csv_holds_plain_numbers_and_no_formula(alice: Person) -> None:
    evil = ProjectFactory(tenant=alice.tenant, slug="evil", name="x")
    use(alice.tenant, 1, project_id=evil.pk)
    give_credit(alice.tenant, "1")
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    answer = alice.api.get(f"/api/v1/invoices/{invoice.pk}/csv")
    assert "invoice-2026-000001.csv" in answer["Content-Disposition"]
    rows = rows_of(answer)
    assert sum(Decimal(row["amount"]) for row in rows) == invoice.total == 4
    assert [row["exact"] for row in rows if row["project"] == "evil"] == ["0.000050000000"]
    assert rows[-1]["amount"].startswith("-1.0")  # a number, not a text


def test_a_text_that_looks_like_a_formula_is_disarmed(alice: Person) -> None:
    use(alice.tenant, 100_000)
    lines = [Correction(description="=HYPERLINK(1)", amount=Decimal(1))]
    note = credit_note_create(by=alice.user, invoice=close_may(alice.tenant), reason="x", lines=lines)
    rows = rows_of(alice.api.get(f"/api/v1/invoices/{note.pk}/csv"))
    assert rows[0]["description"] == "'=HYPERLINK(1)"


def test_the_balance_says_what_is_there_what_is_owed_and_what_may_still_be_spent(alice: Person) -> None:
    use(alice.tenant, 100_000)
    close_may(alice.tenant)
    set_mode(alice.tenant, BillingMode.PREPAID)
    give_credit(alice.tenant, "10")
    job_id = uuid4()
    hold_place(tenant=alice.tenant, job_id=job_id, project_id=None, key_id=None, amount=Decimal(4))
    use(alice.tenant, 20_000, job_id=job_id, at=timezone.now().replace(tzinfo=None).isoformat())
    alice.api.post("/api/v1/budgets", {"amount": "50"})
    told = alice.api.get("/api/v1/balance").json()
    amounts = {
        name: value and Decimal(value["amount"]) for name, value in told.items() if name not in {"mode", "month"}
    }
    assert told["mode"] == "prepaid"
    assert amounts == {
        **{"credit": 6, "held": 3, "unbilled": 0, "due": 5},
        **{"spent": 1, "reserved": 3, "limit": None, "budget": 50},
    }


def test_the_ledger_is_paged_newest_first_and_every_movement_sums_to_zero(alice: Person, charlie: Person) -> None:
    for number in range(5):
        give_credit(alice.tenant, str(number + 1))
    entries = (Entry(account=Account.CREDIT, amount=Decimal(-1)), Entry(account=Account.PROMO, amount=Decimal(1)))
    move(tenant_id=alice.tenant.pk, kind=LedgerKind.GRANT, reference="back", entries=entries)
    give_credit(charlie.tenant, "77")
    rows, url = [], "/api/v1/ledger?limit=2"
    while url:
        page = alice.api.get(url).json()
        rows += page["results"]
        url = page["next"]
    assert len(rows) == 6
    assert rows[0]["reference"] == "back"
    assert all(sum(Decimal(entry["amount"]["amount"]) for entry in row["entries"]) == 0 for row in rows)
    assert "77" not in {entry["amount"]["amount"].split(".")[0] for row in rows for entry in row["entries"]}
