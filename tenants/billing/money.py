"""Money in the database: integers of a millionth of a millionth, so that sums are exact on every database."""

from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any

from django import forms
from django.db import models

PLACES = 12
QUANTUM = Decimal(1).scaleb(-PLACES)

if TYPE_CHECKING:  # Django's fields take type arguments in the stubs only
    _Integer = models.BigIntegerField[Decimal, Decimal]
else:
    _Integer = models.BigIntegerField


def to_quantum(value: Decimal) -> Decimal:
    """Round to 12 decimal places, half up. Only here and for display is money ever rounded."""
    with localcontext(prec=60):
        return value.quantize(QUANTUM, rounding=ROUND_HALF_UP)


def plain(value: Decimal) -> str:
    """Every digit, no trailing zeros, no exponent: ``10``, ``0.05``."""
    return f"{value.normalize():f}"


class MoneyField(_Integer):
    """A Decimal of 12 places, stored as an integer count of 10^-12.

    SQLite keeps decimals as binary floats and would add them up inexactly. One value reaches 9.2 million.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Decimal | None:
        return None if value is None else Decimal(int(value)).scaleb(-PLACES)

    def to_python(self, value: Any) -> Decimal | None:
        return None if value is None else Decimal(str(value))

    def get_prep_value(self, value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, float):
            raise TypeError(f"money is Decimal, never float: got {value!r}")
        with localcontext(prec=60):
            scaled = Decimal(value).scaleb(PLACES)
            if scaled != scaled.to_integral_value():
                raise ValueError(f"{value} has more than {PLACES} decimal places")
            return int(scaled)

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.value_from_object(obj))

    @property
    def validators(self) -> list[Any]:
        return []  # the integer's range does not apply to the Decimal

    def formfield(self, **kwargs: Any) -> Any:
        return forms.DecimalField(max_digits=19, decimal_places=PLACES, **{"label": self.verbose_name} | kwargs)
