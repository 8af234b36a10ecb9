"""What the runtime page shows: each service now and over the last half hour, one's own part of it, fairness, waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frontend.figures import figure_json, service_colour
from frontend.figures.lines import Line, balance_bars, percent_lines, size_bars
from jobs.selectors.fairness import Fairness, fairness
from jobs.selectors.runtime import RuntimeReport, RuntimeState
from jobs.selectors.spans import ON_DEVICE
from jobs.selectors.utilization import SERVICES, UtilizationHistory, utilization_history
from tenants.models import Tenant

MEMBERS = {"training": "jobs", "inference": "requests", "environment": "processes"}  # what a group consists of
COUNTED = {"training": "forwards", "inference": "measurements of one or more forwards"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCard:
    """One service. ``now`` is the runtime's own last account; None where it has not told of this service."""

    service: str
    slot: int  # of its colour
    now: dict[str, Any] | None
    is_fresh: bool
    history: UtilizationHistory
    fairness: Fairness | None  # None: it has seats instead

    @property
    def tone(self) -> str:
        """Of the job states' colours."""
        if self.now is None:
            return "queued"
        tones = {"stopped": "failed", "busy": "running", "draining": "cancelling"}
        return tones.get(self.now["state"], "queued") if self.is_fresh else "failed"

    @property
    def word(self) -> str:
        if self.now is None:
            return "not told"
        words = {"draining": "draining, takes no new jobs"}
        return words.get(self.now["state"], self.now["state"]) if self.is_fresh else "not reachable"

    @property
    def members(self) -> str:
        return MEMBERS[self.service]

    @property
    def busy_now(self) -> float:
        return 100 * self.now["busy_share"] if self.now else 0.0

    @property
    def busy_mean(self) -> float:
        return 100 * self.history.busy_share

    @property
    def own_of_busy(self) -> float | None:
        """Percent of all the service did; None where it did nothing."""
        return 100 * self.history.own_share / self.history.busy_share if self.history.busy_share else None


def service_cards(tenant: Tenant, report: RuntimeReport) -> list[ServiceCard]:
    """Training, inference, environment."""
    told: dict[str, dict[str, Any]] = {row["service"]: row for row in report.services}
    fresh = report.state in {RuntimeState.READY, RuntimeState.NOT_ACCEPTING}
    return [
        ServiceCard(
            service=service,
            slot=slot,
            now=told.get(service),
            is_fresh=fresh,
            history=utilization_history(tenant, service=service),
            fairness=fairness(tenant, service) if service in ON_DEVICE else None,
        )
        for slot, service in enumerate(SERVICES, 1)
    ]


def runtime_figures(cards: list[ServiceCard]) -> dict[str, dict[str, Any]]:
    """Busy time, one's own part, group sizes and fairness, as JSON."""
    colours = {card.service: service_colour(card.service) for card in cards}
    bucket_s = cards[0].history.bucket_s
    busy = [Line(name=c.service, colour=colours[c.service], percents=_percent(c.history.busy)) for c in cards]
    own = [Line(name=c.service, colour=colours[c.service], percents=_percent(c.history.own)) for c in cards]
    sizes = {card.service: card.history.group_sizes for card in cards if card.fairness is not None}
    ahead = {card.service: card.fairness.ahead_s for card in cards if card.fairness is not None}
    return {
        "busy": figure_json(percent_lines(busy, bucket_s=bucket_s), height="l"),
        "own": figure_json(percent_lines(own, bucket_s=bucket_s), height="l"),
        "groups": figure_json(size_bars(sizes, colours, "members of one group")),
        "fair": figure_json(balance_bars(ahead, colours)),
    }


def group_words(cards: list[ServiceCard]) -> list[str]:
    """A sentence per service with groups: mean and count of the last half hour."""
    words = []
    for card in cards:
        if card.service in COUNTED:
            words.append(_group_words(card.service, card.history.group_sizes))
    return words


def _group_words(service: str, sizes: Mapping[int, int]) -> str:
    total = sum(sizes.values())
    if not total:
        return f"{service.capitalize()}: nothing ran."
    mean = sum(size * count for size, count in sizes.items()) / total
    return f"{service.capitalize()}: mean {mean:.2f} {MEMBERS[service]} over {total:,} {COUNTED[service]}."


def _percent(shares: list[float]) -> list[float]:
    return [round(100 * share, 2) for share in shares]
