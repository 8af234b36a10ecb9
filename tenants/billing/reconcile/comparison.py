"""What a check compared, and where two figures that must be equal are not."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

from tenants.billing.money import plain

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """``expected`` is what follows from the source of the figure, ``found`` what was made of it."""

    tenant_id: UUID | None
    subject: str
    expected: str
    found: str


@dataclass(slots=True)
class Comparison:
    """Pairs of figures. ``compared`` counts them, so that a check over nothing can be told from a good one."""

    compared: int = 0
    differences: list[Difference] = field(default_factory=list)

    def equal(self, tenant_id: UUID | None, subject: str, expected: Any, found: Any) -> None:
        """Compare two figures."""
        self.compared += 1
        if expected != found:
            self.wrong(tenant_id, subject, expected, found)

    def equal_by_key(
        self,
        tenant_id: UUID | None,
        expected: Mapping[Key, Any],
        found: Mapping[Key, Any],
        subject: Callable[[Key], str],
    ) -> None:
        """Compare figures under every key that either side has; a missing one is 0."""
        for key in sorted({*expected, *found}, key=str):
            self.equal(tenant_id, subject(key), expected.get(key, 0), found.get(key, 0))

    def wrong(self, tenant_id: UUID | None, subject: str, expected: Any, found: Any) -> None:
        """Note a difference that needs no comparing."""
        self.differences.append(
            Difference(tenant_id=tenant_id, subject=subject, expected=_text(expected), found=_text(found))
        )


Check = Callable[[], Comparison]


def _text(figure: Any) -> str:
    """Decimals without an exponent or trailing zeros."""
    if isinstance(figure, tuple):
        return " / ".join(_text(part) for part in figure)
    return plain(figure) if isinstance(figure, Decimal) else str(figure)
