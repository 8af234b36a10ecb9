"""What a tenant's own finished jobs used per unit of their work: the ground on which others are estimated."""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from django.db.models import Sum

from jobs.models import Job
from jobs.services.admission.start import Start
from jobs.services.estimates.planned_units import work_done
from jobs.states import JobState
from tenants.billing.models import Meter, UsageRollup
from tenants.models import Tenant
from tenants.scope import tenant_scope

JOBS_MAX = 20  # newest first; older ones ran on other hardware and other code


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Units of a meter per unit of work, over ``jobs`` finished jobs."""

    low: Fraction
    median: Fraction
    high: Fraction
    jobs: int


def measured_per_unit(tenant: Tenant, *, kind: str, start: Start, with_lora: bool) -> dict[Meter, Measured]:
    """Of the last jobs of the same kind, base and head that succeeded; work the platform did again is left out.

    A job that trains LoRA runs the base forward and backward in every epoch; one without reads stored features from
    the second on. Either is compared with its like.
    Other tenants' jobs are not looked at: what they measure is theirs.
    """
    with tenant_scope(tenant):
        finished = Job.objects.filter(kind=kind, base_model=start.base_model, head=start.head)
        finished = finished.filter(spec__lora__rank__isnull=not with_lora)
        finished = finished.filter(state=JobState.SUCCEEDED, step__gt=0).order_by("-finished_at")[:JOBS_MAX]
        work = {pk: work_done(kind, step, spec) for pk, step, spec in finished.values_list("pk", "step", "spec")}
        rows = UsageRollup.objects.filter(job_id__in=work, reason="").order_by("job_id", "meter")
        used = list(rows.values_list("job_id", "meter").annotate(Sum("quantity")))
    ratios: defaultdict[Meter, list[Fraction]] = defaultdict(list)
    for job_id, meter, quantity in used:
        if work[job_id] > 0:
            ratios[Meter(meter)].append(Fraction(int(quantity), work[job_id]))
    return {
        meter: Measured(low=min(found), median=Fraction(median(found)), high=max(found), jobs=len(found))
        for meter, found in ratios.items()
    }
