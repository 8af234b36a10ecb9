"""The database itself keeps usage, ratings and prices append-only."""

import pytest
from django.db import DatabaseError, connection, transaction

from tenants.billing.models import PriceVersion
from tenants.billing.seeds import DEFAULT_PRICES
from tests.support.story import Person
from tests.support.usage import ingest

TABLES = ["billing_priceversion", "billing_usageevent", "billing_ratedusage"]
CHANGES = {
    "billing_priceversion": "amount = 0",
    "billing_usageevent": "quantity = 0",
    "billing_ratedusage": "amount = 0",
}


def refused(sql: str) -> None:
    with pytest.raises(DatabaseError, match="is append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.parametrize("table", TABLES)
def test_raw_sql_can_neither_update_nor_delete(alice: Person, table: str):
    ingest(alice.tenant)
    refused(f"UPDATE {table} SET {CHANGES[table]}")
    refused(f"DELETE FROM {table}")


@pytest.mark.parametrize("table", TABLES)
def test_emptying_a_table_is_refused(alice: Person, table: str):
    ingest(alice.tenant)
    connection.check_constraints()  # settles the pending ones, which would refuse a TRUNCATE before the trigger does
    refused(f"TRUNCATE {table} CASCADE" if connection.vendor == "postgresql" else f"DELETE FROM {table} WHERE 1 = 1")


def test_rows_refuse_to_be_saved_again_or_deleted(alice: Person):
    event = ingest(alice.tenant)[0]
    for row in (event, event.rated, event.rated.price):
        with pytest.raises(TypeError, match="append-only"):
            row.save()
        with pytest.raises(TypeError, match="append-only"):
            row.delete()


@pytest.mark.django_db(transaction=True)
def test_after_a_test_with_real_transactions_prices_are_back():
    assert PriceVersion.objects.count() == len(DEFAULT_PRICES)


@pytest.mark.django_db(transaction=True)
def test_and_so_are_the_triggers():
    assert PriceVersion.objects.count() == len(DEFAULT_PRICES)
    refused("DELETE FROM billing_priceversion")
