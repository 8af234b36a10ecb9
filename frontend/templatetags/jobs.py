"""How the job list writes people: by what stands before the @ of their address."""

from django import template

register = template.Library()


@register.filter
def before_at(email: str) -> str:
    """``kestrel-03`` of ``kestrel-03@lab.example``; the whole is in the tooltip."""
    return email.partition("@")[0]
