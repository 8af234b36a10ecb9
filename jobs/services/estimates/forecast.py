"""What would become of a specification if it were submitted now; nothing is changed by asking."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, takewhile
from typing import Any
from uuid import uuid4

from django.db import transaction
from django.utils import timezone

from gpu_runtime.protocol.job_specs import JobSpec
from jobs.demand import seats_asked
from jobs.selectors.line import InLine, line_of, queued_total
from jobs.services.admission.entry import entry_refusals, require_possible
from jobs.services.admission.specification import admit
from jobs.services.admission.spending import spending_refusals
from jobs.services.estimates.estimate import Estimate, estimate, hold_of
from jobs.services.places import line_turns
from tenants.billing.ledger.holds import hold_place
from tenants.bodies import parse_body
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import ApiKey, Project, Tenant
from tenants.quotas.limits import limits_read
from tenants.scope import tenant_scope
from tenants.selectors import project_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Cost, what would be reserved, every refusal, and the place in line. ``reason`` "": it would start at once."""

    project: Project
    priority: int
    estimate: Estimate
    hold: Decimal
    refusals: tuple[ApplicationError, ...]
    position: int
    of: int
    reason: str

    @property
    def is_admitted(self) -> bool:
        return not self.refusals


def job_forecast(*, tenant: Tenant, actor: Actor | None, spec: Any) -> Forecast:
    """Judge a JSON specification like `job_submit`, without effect.

    What is wrong with the specification itself is raised as there (422); what limits, budgets and credit would say
    is in the answer, all of it.
    """
    wanted: JobSpec = parse_body(JobSpec, spec)
    with tenant_scope(tenant):
        project = project_for(actor or tenant, wanted.project)
        start, limits = admit(tenant, wanted), limits_read(tenant)
        require_possible(wanted, project, limits)
        key, likely = actor.key if actor else None, estimate(tenant, wanted, start)
        hold = hold_of(wanted, likely)
        refusals = chain(
            entry_refusals(tenant, project, limits),
            spending_refusals(tenant=tenant, project=project, key=key, limits=limits, amount=hold),
            _credit_refusals(tenant, project, key, hold),
        )
        position, reason = _place(tenant, project, wanted)
        return Forecast(
            project=project,
            priority=wanted.priority,
            estimate=likely,
            hold=hold,
            refusals=tuple(refusals),
            position=position,
            of=queued_total(tenant) + 1,
            reason=reason,
        )


def _credit_refusals(
    tenant: Tenant, project: Project, key: ApiKey | None, amount: Decimal
) -> Iterator[ApplicationError]:
    """Asked of the ledger itself: a hold is placed and taken back before anybody sees it."""
    try:
        with transaction.atomic():
            key_id = key.pk if key else None
            hold_place(tenant=tenant, job_id=uuid4(), project_id=project.pk, key_id=key_id, amount=amount)
            transaction.set_rollback(True)
    except ApplicationError as refusal:
        yield refusal


def _place(tenant: Tenant, project: Project, spec: JobSpec) -> tuple[int, str]:
    """Where in line it would stand, and what it would wait for."""
    newcomer = InLine(
        pk=uuid4(),
        project_id=project.pk,
        kind=spec.kind,
        env_seats=seats_asked(spec),
        priority=spec.priority,
        reason="",
        created_at=timezone.now(),
    )
    ahead = list(takewhile(lambda job: job.priority >= spec.priority, line_of(tenant)))
    turn = next(turn for turn in line_turns(tenant, line=[*ahead, newcomer]) if turn.job is newcomer)
    return len(ahead) + 1, turn.wait.reason if turn.wait else ""
