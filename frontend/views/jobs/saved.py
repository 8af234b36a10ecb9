"""The tabs over the job list: views everybody needs, and the tenant's own most used tags. Counts are bounded."""

from collections import Counter
from dataclasses import dataclass

from django.utils.http import urlencode

from frontend.views.jobs.asked import Asked
from frontend.views.jobs.rows import COUNTED_MAX
from jobs.selectors.filters import STATE_LIVE, JobFilter
from jobs.selectors.jobs import job_list, recent_tags
from jobs.states import JobState
from tenants.models import Tenant

FAILED_DAYS = 7
TAGS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """``query`` is its address; ``count`` is exact below the bound, or "999+"."""

    title: str
    query: str
    count: str
    current: bool


def counted(count: int) -> str:
    """``128``, or ``999+`` where nobody counted on."""
    return str(count) if count < COUNTED_MAX else f"{COUNTED_MAX - 1}+"


def tag_counts(tenant: Tenant) -> Counter[str]:
    """The tags of the newest jobs, by how many have each."""
    return Counter(recent_tags(tenant))


def tabs_of(tenant: Tenant, asked: Asked, tags: Counter[str]) -> tuple[Tab, ...]:
    """One bounded query each."""
    popular = [name for name, _ in sorted(tags.items(), key=lambda own: (-own[1], own[0]))[:TAGS_SHOWN]]
    views: list[tuple[str, JobFilter, dict[str, str]]] = [
        ("All", JobFilter(), {}),
        ("Live", JobFilter(state=STATE_LIVE), {"state": STATE_LIVE}),
        (
            f"Failed, {FAILED_DAYS} days",
            JobFilter(state=JobState.FAILED, ended_days=FAILED_DAYS),
            {"state": JobState.FAILED.value, "ended": str(FAILED_DAYS)},
        ),
        ("Evaluations", JobFilter(kind="evaluation"), {"kind": "evaluation"}),
        *((name, JobFilter(tag=name), {"tag": name}) for name in popular),
    ]
    return tuple(
        Tab(
            title=title,
            query=urlencode(params),
            count=counted(job_list(tenant, wanted).order_by().values("pk")[:COUNTED_MAX].count()),
            current=dict(asked.filters) == params,
        )
        for title, wanted, params in views
    )
