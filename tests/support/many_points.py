"""A job with very many points, put straight into an embedded database: telling them one by one would take minutes."""

from datetime import UTC, datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F

from jobs.models import Job, MetricCurve, MetricPoint
from jobs.services.curves import points_add
from tenants.scope import platform_scope

SERIES = (
    *("train/loss", "eval/action_error", "train/grad_norm", "train/samples_per_s", "service/group_size"),
    *("service/busy_share", "train/lr", "probe/a", "probe/b", "probe/c"),
)
SPIKE = 40.0
_POINTS = """
INSERT INTO jobs_metricpoint (tenant_id, job_id, seq, attempt, series, step, value, special, occurred_at)
WITH RECURSIVE steps(step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM steps WHERE step < %s)
SELECT %s, %s, %s + step, 1, %s, step,
       CASE WHEN step = %s THEN %s ELSE 2.0 / (1 + step / 2e4) + (step %% 89) / 300.0 END,
       '', datetime('2026-11-01', '+' || step || ' seconds')
FROM steps
"""


def seed(job_id: str, *, steps: int = 100_000, spike_at: int = 71_234) -> None:
    """``steps`` points in each of SERIES, all ordinary but one ``SPIKE`` in the first; with their buckets."""
    with platform_scope(), transaction.atomic(), connection.cursor() as cursor:
        job = Job.objects.select_for_update().get(pk=UUID(job_id))
        for name in SERIES:
            at = spike_at if name == SERIES[0] else 0
            owner = (job.tenant_id.hex, job.pk.hex)
            cursor.execute(_POINTS, [steps, *owner, job.last_seq, name, at, SPIKE])
        MetricCurve.objects.bulk_create([_curve(job, name, steps) for name in SERIES])
        points_add([_next(job, name, steps + 1) for name in SERIES])
        Job.objects.filter(pk=job.pk).update(last_seq=F("last_seq") + steps + 1, step=steps + 1)


def _curve(job: Job, name: str, steps: int) -> MetricCurve:
    """One whose points are there and whose buckets are not: the next point makes them."""
    return MetricCurve(
        tenant_id=job.tenant_id, job=job, attempt=1, series=name, points=steps, first_step=1, last_step=steps
    )


def _next(job: Job, name: str, step: int) -> MetricPoint:
    return MetricPoint(
        tenant_id=job.tenant_id,
        job_id=job.pk,
        seq=job.last_seq + step,
        attempt=1,
        series=name,
        step=step,
        value=0.5,
        special="",
        occurred_at=datetime.now(UTC),
    )
