"""How a comparison writes its figures."""

from django import template

register = template.Library()


@register.filter
def p_value(p: float) -> str:
    """``0.19``; below a thousandth only that it is."""
    return "below 0.001" if p < 0.001 else f"{p:.2g}"
