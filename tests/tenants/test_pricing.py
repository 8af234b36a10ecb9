"""Charges are exact: by hand, against fractions, and however a month's quantity is split."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenants.billing.models import PriceShape
from tenants.billing.prices.offers import offer_of
from tenants.billing.prices.pricing import Price, Tier, charge, is_exact
from tenants.billing.prices.tiers import TIERS_MAX, tiers_parse
from tenants.errors import ApplicationError

SAMPLES = Price(shape=PriceShape.UNIT, amount=Decimal("0.05"), per=1_000)
THIRDS = Price(shape=PriceShape.UNIT, amount=Decimal(1), per=3_000_000_000)  # no decimal fraction says it
PACKS = Price(shape=PriceShape.PACKAGE, amount=Decimal("2.50"), per=1_000)
STEPS_DOWN = Price(
    shape=PriceShape.GRADUATED,
    amount=Decimal("0.05"),
    per=1_000,
    tiers=(
        Tier(up_to=10_000, amount=Decimal("0.05")),
        Tier(up_to=50_000, amount=Decimal("0.04")),
        Tier(up_to=None, amount=Decimal("0.01")),
    ),
)


@pytest.mark.parametrize(
    ("price", "quantity", "before", "permille", "amount"),
    [
        (SAMPLES, 0, 0, 1000, "0"),
        (SAMPLES, 16, 0, 1000, "0.0008"),
        (SAMPLES, 16, 10**9, 1500, "0.0012"),  # a unit price does not look at what came before
        (THIRDS, 1, 0, 1000, "0.000000000333"),
        (THIRDS, 2, 0, 1000, "0.000000000667"),
        (PACKS, 1, 0, 1000, "2.50"),
        (PACKS, 999, 1, 1000, "0"),  # the package is paid for
        (PACKS, 1_000, 1, 1000, "2.50"),
        (PACKS, 2_001, 0, 500, "3.75"),
        (STEPS_DOWN, 10_000, 0, 1000, "0.5"),
        (STEPS_DOWN, 2, 9_999, 1000, "0.00009"),  # one unit in each tier
        (STEPS_DOWN, 100_000, 0, 1000, "2.6"),  # 0.5 + 1.6 + 0.5
        (STEPS_DOWN, 100_000, 0, 2000, "5.2"),
        (STEPS_DOWN, 1_000, 10**15, 1000, "0.01"),
    ],
)
def test_charges_worked_out_by_hand(price: Price, quantity: int, before: int, permille: int, amount: str) -> None:
    assert charge(price, quantity, before=before, permille=permille) == Decimal(amount)


AMOUNTS = st.integers(0, 10**16).map(lambda quanta: Decimal(quanta).scaleb(-12))


@st.composite
def prices(draw: st.DrawFn) -> Price:
    shape = draw(st.sampled_from(PriceShape))
    per = draw(st.integers(1, 10**10))
    if shape != PriceShape.GRADUATED:
        return Price(shape=shape, amount=draw(AMOUNTS), per=per)
    bounds = sorted(draw(st.sets(st.integers(1, 10**7), max_size=4)))
    tiers = tuple(Tier(up_to=bound, amount=draw(AMOUNTS)) for bound in (*bounds, None))
    return Price(shape=shape, amount=tiers[0].amount, per=per, tiers=tiers)


def exact(price: Price, units: int, permille: int) -> Fraction:
    """The definition, unit by tier, without any rounding."""
    factor = Fraction(permille, 1000)
    if price.shape == PriceShape.PACKAGE:
        return -(-units // price.per) * Fraction(price.amount) * factor
    total, floor = Fraction(0), 0
    for tier in price.tiers or (Tier(up_to=None, amount=price.amount),):
        top = min(units, tier.up_to) if tier.up_to is not None else units
        total += Fraction(max(top - floor, 0)) * Fraction(tier.amount) / price.per
        floor = max(floor, top)
    return total * factor


@given(price=prices(), quantity=st.integers(0, 10**9), before=st.integers(0, 10**9), permille=st.integers(0, 9_999))
def test_a_charge_is_within_one_last_digit_of_the_definition(
    price: Price, quantity: int, before: int, permille: int
) -> None:
    start = before if price.counts_on else 0
    wanted = exact(price, start + quantity, permille) - exact(price, start, permille)
    found = charge(price, quantity, before=before, permille=permille)
    assert abs(Fraction(found) - wanted) <= Fraction(1, 10**12)
    assert found >= 0


@settings(max_examples=300)
@given(
    price=prices(),
    parts=st.lists(st.integers(0, 10**8), min_size=1, max_size=30),
    before=st.integers(0, 10**8),
    permille=st.integers(1, 5_000),
    order=st.randoms(),
)
def test_parts_in_any_order_add_up_to_the_whole(
    price: Price, parts: list[int], before: int, permille: int, order: object
) -> None:
    order.shuffle(parts)  # type: ignore[attr-defined]
    whole = charge(price, sum(parts), before=before, permille=permille)
    total, so_far = Decimal(0), before
    for part in parts:
        total += charge(price, part, before=so_far, permille=permille)
        so_far += part
    if price.counts_on or is_exact(price, permille):
        assert total == whole
    else:  # each part is rounded by itself
        assert abs(total - whole) <= Decimal(len(parts) + 1) / 2 * Decimal("1e-12")


@pytest.mark.parametrize("counts", [{"quantity": -1}, {"before": -1}, {"permille": -1}])
def test_negative_counts_are_refused(counts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        charge(SAMPLES, **{"quantity": 1} | counts)


OPEN = {"up_to": None, "amount": "1"}


@pytest.mark.parametrize(
    ("tiers", "pointer", "code"),
    [
        ("many", "/tiers", "tiers_count"),
        ([], "/tiers", "tiers_count"),
        ([OPEN] * (TIERS_MAX + 1), "/tiers", "tiers_count"),
        ([{"up_to": None}], "/tiers/0", "tier_fields"),
        ([{"up_to": None, "amount": "1", "flat": "2"}], "/tiers/0", "tier_fields"),
        ([{"up_to": 5, "amount": "1"}], "/tiers/0/up_to", "tier_last_open"),
        ([{"up_to": 0, "amount": "1"}, OPEN], "/tiers/0/up_to", "tier_bound_not_rising"),
        ([OPEN] * 2, "/tiers/0/up_to", "tier_bound_not_rising"),
        ([{"up_to": True, "amount": "1"}, OPEN], "/tiers/0/up_to", "tier_bound_not_rising"),
        ([{"up_to": 5, "amount": "1"}] * 2 + [OPEN], "/tiers/1/up_to", "tier_bound_not_rising"),
        ([{"up_to": None, "amount": 0.05}], "/tiers/0/amount", "tier_amount_invalid"),
        ([{"up_to": None, "amount": "-1"}], "/tiers/0/amount", "tier_amount_invalid"),
        ([{"up_to": None, "amount": "0.0000000000001"}], "/tiers/0/amount", "tier_amount_invalid"),
        ([{"up_to": None, "amount": "NaN"}], "/tiers/0/amount", "tier_amount_invalid"),
    ],
)
def test_every_fault_of_tiers_is_named(tiers: object, pointer: str, code: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        tiers_parse(tiers)
    assert (caught.value.code, caught.value.status) == ("tiers_invalid", 422)
    assert [(fault.pointer, fault.code) for fault in caught.value.errors] == [(pointer, code)]


def test_several_faults_are_told_at_once() -> None:
    with pytest.raises(ApplicationError) as caught:
        tiers_parse([{"up_to": "5", "amount": "x"}, {"up_to": 9, "amount": "1"}])
    assert [fault.pointer for fault in caught.value.errors] == ["/tiers/0/up_to", "/tiers/0/amount", "/tiers/1/up_to"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"shape": "volume"}, "/shape"),
        ({"per": 0}, "/per"),
        ({"amount": None}, "/amount"),
        ({"amount": Decimal("-0.01")}, "/amount"),
        ({"amount": Decimal("NaN")}, "/amount"),
        ({"amount": Decimal("1e6")}, "/amount"),
        ({"amount": Decimal("1e-13")}, "/amount"),
        ({"tiers": [OPEN]}, "/tiers"),
        ({"shape": "graduated", "tiers": [{"up_to": None, "amount": "2"}]}, "/amount"),
    ],
)
def test_a_price_that_makes_no_sense_is_refused_with_the_field(changes: dict, pointer: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        offer_of(**{"shape": "unit", "amount": Decimal(1), "per": 1_000} | changes)
    assert [fault.pointer for fault in caught.value.errors] == [pointer]


def test_what_is_stored_of_an_offer_is_read_as_the_same_price() -> None:
    stored = [{"up_to": 10, "amount": "0.5"}, {"up_to": None, "amount": "0.000000000001"}]
    offer = offer_of(shape="graduated", amount=None, per=3, tiers=stored)
    assert offer.tiers_json == stored
    assert tiers_parse(offer.tiers_json) == offer.price.tiers
    assert offer.price.amount == Decimal("0.5")
