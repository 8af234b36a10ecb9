"""Money is exact: stored, added up and read back without a float in between."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.billing.money import MoneyField, plain, to_quantum

AMOUNTS = st.integers(min_value=0, max_value=9 * 10**18).map(lambda n: Decimal(n).scaleb(-12))


@given(AMOUNTS)
def test_what_is_stored_comes_back(amount: Decimal):
    field = MoneyField()
    assert field.from_db_value(field.get_prep_value(amount), None, None) == amount


@given(st.lists(AMOUNTS, max_size=50))
def test_the_sum_of_the_stored_is_the_stored_sum(amounts: list[Decimal]):
    field = MoneyField()
    assert sum(field.get_prep_value(amount) for amount in amounts) == field.get_prep_value(sum(amounts, Decimal(0)))


def test_halves_are_rounded_up():
    assert to_quantum(Decimal("0.0000000000005")) == Decimal("0.000000000001")


@pytest.mark.parametrize(("value", "error"), [(0.1, TypeError), (Decimal("0.0000000000001"), ValueError)])
def test_floats_and_finer_fractions_are_refused(value: object, error: type[Exception]):
    with pytest.raises(error, match=r"never float|more than 12"):
        MoneyField().get_prep_value(value)


@pytest.mark.parametrize(
    ("value", "text"), [("20", "20"), ("0.0500", "0.05"), ("1E+3", "1000"), ("0.000000000001", "0.000000000001")]
)
def test_an_amount_is_written_out_in_full(value: str, text: str):
    assert plain(Decimal(value)) == text
