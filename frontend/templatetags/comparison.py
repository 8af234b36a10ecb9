"""How a comparison writes its figures."""

from django import template

register = template.Library()

_NBSP = "\u00a0"


@register.filter
def compute_time(us: int) -> str:
    """``4.61 h``, ``12.3 min``, ``41.2 s`` of measured device time; a dash where none was."""
    for unit_us, unit in ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s")):
        if us >= unit_us or unit == "s":
            return f"{us / unit_us:.3g}{_NBSP}{unit}" if us else "–"
    raise AssertionError("unreachable")


@register.filter
def p_value(p: float) -> str:
    """``0.19``; below a thousandth only that it is."""
    return "below 0.001" if p < 0.001 else f"{p:.2g}"
