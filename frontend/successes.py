"""How often the policies of several jobs succeed, as far as is known now."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import OuterRef, Subquery

from jobs.models import Job, MetricPoint
from tenants.models import Tenant
from tenants.scope import tenant_scope

_RATES = {
    "rl": ("rollout/success_once", "rollout/episodes"),
    "evaluation": ("eval/success_rate", "eval/counted"),
    "rollout": ("rollout/success_once", "rollout/episodes"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """``share`` from 0 to 1, of ``episodes``; the newest that was told, at ``step``."""

    share: float
    episodes: int | None
    step: int


def latest_successes(tenant: Tenant, jobs: Sequence[Job]) -> dict[UUID, Success]:
    """By job; jobs of which nothing is known yet are left out. One query per kind among ``jobs``."""
    found: dict[UUID, Success] = {}
    with tenant_scope(tenant):
        for kind in {job.kind for job in jobs} & _RATES.keys():
            found |= _of_kind(kind, [job.pk for job in jobs if job.kind == kind])
    return found


def _of_kind(kind: str, job_ids: list[UUID]) -> dict[UUID, Success]:
    rates, counts = _RATES[kind]
    rows = Job.objects.filter(pk__in=job_ids).annotate(
        share=_newest(rates, "value"), success_step=_newest(rates, "step"), success_episodes=_newest(counts, "value")
    )
    return {
        pk: Success(share=share, step=step, episodes=None if episodes is None else int(episodes))
        for pk, share, step, episodes in rows.values_list("pk", "share", "success_step", "success_episodes")
        if share is not None
    }


def _newest(series: str, column: str) -> Subquery:
    points = MetricPoint.objects.filter(job=OuterRef("pk"), series=series, value__isnull=False)
    return Subquery(points.order_by("-attempt", "-step").values(column)[:1])
