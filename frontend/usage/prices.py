"""Prices in words: what a unit costs, how tiers and packages count, and an example that is reckoned, not written."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from frontend.figures.palette import meter_slot
from frontend.templatetags.billing import units
from frontend.templatetags.console import currency_sign
from frontend.usage.meters import place, title_of
from tenants.billing.currencies import rounded
from tenants.billing.models import COMPUTE_METERS, Meter, PriceShape, PriceVersion
from tenants.billing.money import plain
from tenants.billing.prices.price_list import PriceList, Term, Validity, price_list
from tenants.billing.prices.pricing import Price, charge
from tenants.billing.prices.tariffs import price_of
from tenants.models import Tenant

_NOUNS = {Meter.TRAIN_SAMPLES: "samples", Meter.PREDICT_CHUNKS: "chunks", Meter.ENV_STEPS: "steps"}
_HOUR_US = 3_600_000_000
_GB = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceWords:
    """One version of a meter's price. ``example``: what a quantity costs at the start of a month."""

    meter: str
    title: str
    words: str
    example: str
    term: Term

    @property
    def slot(self) -> int:
        """Of the service's colour."""
        return meter_slot(self.meter)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesTold:
    """The plan of a tenant; prices in force, then announced, then ended ones."""

    listed: PriceList
    in_force: tuple[PriceWords, ...]
    announced: tuple[PriceWords, ...]
    ended: tuple[PriceWords, ...]


def prices_told(tenant: Tenant, now: datetime) -> PricesTold:
    """Everything the prices page says of meters."""
    listed = price_list(tenant, at=now)
    rows = sorted((_told(version, term) for version, term in listed.prices), key=lambda row: place(row.meter))
    return PricesTold(
        listed=listed,
        in_force=tuple(row for row in rows if row.term.state == Validity.IN_FORCE),
        announced=tuple(row for row in rows if row.term.state == Validity.ANNOUNCED),
        ended=tuple(row for row in rows if row.term.state == Validity.ENDED),
    )


def short_prices(tenant: Tenant, now: datetime) -> dict[str, str]:
    """Meter -> its price in force in a few words, for a table's column."""
    return {
        version.meter: _short(version)
        for version, term in price_list(tenant, at=now).prices
        if term.state == Validity.IN_FORCE
    }


def _told(version: PriceVersion, term: Term) -> PriceWords:
    price = price_of(version)
    return PriceWords(
        meter=version.meter,
        title=title_of(version.meter),
        words=_words(version, price),
        example=_example(version, price),
        term=term,
    )


def _words(version: PriceVersion, price: Price) -> str:
    each = _each(version.meter, version.per)
    if price.shape == PriceShape.PACKAGE:
        return f"{_money(price.amount, version)} for each begun package of {each}, counted by the month"
    if price.shape != PriceShape.GRADUATED:
        return f"{_money(price.amount, version)} per {each}"
    parts, before = [], 0
    for tier in price.tiers:
        cost = f"{_money(tier.amount, version)} per {each}"
        if tier.up_to is None:
            parts.append(f"everything after that: {cost}" if before else cost)
        else:
            parts.append(f"{'the first' if not before else 'then up to'} {units(tier.up_to, version.meter)}: {cost}")
            before = tier.up_to
    return "Of a month, " + "; ".join(parts)


def _short(version: PriceVersion) -> str:
    price, each = price_of(version), _each(version.meter, version.per)
    if price.shape == PriceShape.GRADUATED:
        lowest = min(tier.amount for tier in price.tiers)
        return f"{_money(price.tiers[0].amount, version)} to {_money(lowest, version)} / {each}, by tiers"
    begun = "begun " if price.shape == PriceShape.PACKAGE else ""
    return f"{_money(price.amount, version)} / {begun}{each}"


def _example(version: PriceVersion, price: Price) -> str:
    """Enough to show the shape: past the last bound, into a third package, or what comes to one of money at least."""
    quantity = 100 * version.per
    if price.shape == PriceShape.PACKAGE:
        quantity = 2 * version.per + max(1, version.per // 2)
    bounds = [tier.up_to for tier in price.tiers if tier.up_to is not None]
    if bounds:
        quantity = bounds[-1] + bounds[-1] // 2
    while price.amount and charge(price, quantity) < 1:
        quantity *= 10
    cost = rounded(charge(price, quantity), version.currency)
    return f"{units(quantity, version.meter)} in a month: {_money(cost, version)}"


def _each(meter: str, per: int) -> str:
    """What a price is for: ``1,000 samples``, ``hour``, ``GB·h``."""
    if meter in COMPUTE_METERS:
        return "hour" if per == _HOUR_US else f"{per / 1e6:,g}\u00a0s"
    if meter == Meter.STORAGE_BYTE_HOURS:
        return "GB\u00a0h" if per == _GB else f"{per / _GB:,g}\u00a0GB\u00a0h"
    noun = _NOUNS.get(Meter(meter), "units") if meter in Meter.values else "units"
    return noun.removesuffix("s") if per == 1 else f"{per:,}\u00a0{noun}"


def _money(amount: Decimal, version: PriceVersion) -> str:
    """Every digit of a price, two places at least."""
    digits = plain(amount)
    whole, _, cents = digits.partition(".")
    return f"{currency_sign(version.currency)}{int(whole):,}.{cents.ljust(2, '0')}"
