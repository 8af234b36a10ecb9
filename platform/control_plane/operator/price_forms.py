"""Forms of the price screens. What a price must look like is for the services to say."""

import re
from typing import Any

from django import forms

from tenants.billing.models import PricePlan, PriceShape
from tenants.billing.prices.plans import PERMILLE_MAX, PRIORITY_MAX

_TIER = re.compile(r"(?P<up_to>[\d,]+|rest)\s+(?P<amount>[\d.]+)")


def moment_field(label: str = "From, UTC") -> forms.DateTimeField:
    return forms.DateTimeField(label=label, widget=forms.DateTimeInput(attrs={"type": "datetime-local"}))


class TiersField(forms.CharField):
    """Tiers as lines: ``1000000 0.05``, the last one ``rest 0.03``."""

    widget = forms.Textarea(attrs={"rows": 3, "cols": 24, "spellcheck": "false"})

    def clean(self, value: Any) -> list[dict[str, Any]]:
        tiers = []
        for line in filter(None, map(str.strip, super().clean(value).splitlines())):
            found = _TIER.fullmatch(line)
            if found is None:
                raise forms.ValidationError(f"{line!r} is not a bound, or 'rest', and an amount.")
            bound = found["up_to"].replace(",", "")
            tiers.append({"up_to": None if bound == "rest" else int(bound), "amount": found["amount"]})
        return tiers


class PriceForm(forms.Form):
    """A new price of one meter. ``version`` is the plan's, as the operator saw it."""

    shape = forms.ChoiceField(choices=PriceShape.choices)
    amount = forms.DecimalField(
        required=False, max_digits=19, decimal_places=12, help_text="Of graduated prices: empty."
    )
    per = forms.IntegerField(label="Per units", min_value=1)
    tiers = TiersField(required=False, help_text="Graduated: '1000000 0.05' a line, the last 'rest 0.03'.")
    valid_from = moment_field()
    reason = forms.CharField(max_length=500)
    version = forms.IntegerField(widget=forms.HiddenInput)

    def price(self) -> dict[str, Any]:
        """What the services call a price."""
        return {name: self.cleaned_data[name] for name in ("shape", "amount", "per", "tiers")}


class FactorForm(forms.Form):
    """What jobs of a priority pay."""

    priority = forms.IntegerField(min_value=0, max_value=PRIORITY_MAX)
    permille = forms.IntegerField(
        label="Thousandths of the price", min_value=1, max_value=PERMILLE_MAX, help_text="1000: the price itself."
    )
    valid_from = moment_field()
    reason = forms.CharField(max_length=500)
    version = forms.IntegerField(widget=forms.HiddenInput)


class PlanForm(forms.Form):
    """A new plan."""

    code = forms.SlugField(max_length=50)
    name = forms.CharField(max_length=200)
    currency = forms.RegexField(r"[A-Z]{3}", max_length=3, help_text="ISO 4217, as EUR.")
    copy_of = forms.ModelChoiceField(
        queryset=PricePlan.objects.order_by("code"), required=False, empty_label="none", label="Prices as in"
    )


def tiers_as_lines(tiers: list[dict[str, Any]]) -> str:
    """The other way round: what the field shows of a stored price."""
    return "\n".join(f"{'rest' if tier['up_to'] is None else tier['up_to']} {tier['amount']}" for tier in tiers)
