"""What admission must do, said without the database: limits, order and money of a few tenants, from definitions."""

from dataclasses import dataclass, field
from decimal import Decimal

RUNNING, SLOTS, SEATS, QUEUED, MONEY = "running_jobs", "slots", "env_seats", "queued_jobs", "money_per_month"
AT_ONCE = (RUNNING, SLOTS, SEATS)
DEFAULTS = {RUNNING: 16, SLOTS: 16, SEATS: 64, QUEUED: 1000}


@dataclass(kw_only=True, eq=False)
class ModelJob:
    """One job. ``state``: queued, started, or ended."""

    key: str
    tenant: int
    project: str
    trains: bool
    seats: int
    priority: int
    number: int  # rises with every submit
    cost: Decimal  # its hold
    used: Decimal = Decimal(0)  # money it has spent
    state: str = "queued"

    @property
    def demand(self) -> dict[str, int]:
        return {RUNNING: 1, SLOTS: int(self.trains), SEATS: self.seats}


@dataclass(kw_only=True)
class ModelLimit:
    limit: int
    until: int | None  # tick at which it ends


@dataclass(kw_only=True)
class Model:
    """Everything there is; time is a count of ticks."""

    now: int = 0
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    limits: dict[tuple[int, str | None, str], list[ModelLimit]] = field(default_factory=dict)
    paused: set[int] = field(default_factory=set)

    def limit(self, tenant: int, project: str | None, resource: str) -> int | None:
        """The newest that is in force; a default only for the whole tenant."""
        rows = [row for row in self.limits.get((tenant, project, resource), []) if not self._over(row)]
        return rows[-1].limit if rows else None if project else DEFAULTS.get(resource)

    def set_limit(self, key: tuple[int, str | None, str], limit: int, until: int | None) -> None:
        known = self.limits.setdefault(key, [])
        known[:] = [row for row in known if until is not None and row.until is None]
        known.append(ModelLimit(limit=limit, until=until))

    def _over(self, row: ModelLimit) -> bool:
        return row.until is not None and row.until <= self.now

    def of(self, tenant: int, state: str, project: str | None = None) -> list[ModelJob]:
        return [
            job
            for job in self.jobs.values()
            if job.tenant == tenant and job.state == state and project in (None, job.project)
        ]

    def line(self, tenant: int) -> list[ModelJob]:
        return sorted(self.of(tenant, "queued"), key=lambda job: (-job.priority, job.number))

    # --- turns: by definition, each job on its own ---

    def wait(self, job: ModelJob) -> str:
        """What a queued job waits for; "": it may start."""
        if job.tenant in self.paused:
            return "tenant_paused"
        line = self.line(job.tenant)
        before = line[: line.index(job)]
        siblings = [one for one in before if one.project == job.project and self._possible(one)]
        lacking = self._lacking(job, job.project, siblings)
        if lacking is None:
            keepers = [one for one in before if self._possible(one) and self._fits_its_project(one, line)]
            lacking = self._lacking(job, None, keepers)
        return "" if lacking is None else f"quota_{lacking}"

    def _fits_its_project(self, job: ModelJob, line: list[ModelJob]) -> bool:
        before = line[: line.index(job)]
        siblings = [one for one in before if one.project == job.project and self._possible(one)]
        return self._lacking(job, job.project, siblings) is None

    def _lacking(self, job: ModelJob, project: str | None, keepers: list[ModelJob]) -> str | None:
        taken = self.of(job.tenant, "started", project) + keepers
        for resource in AT_ONCE:
            limit, wanted = self.limit(job.tenant, project, resource), job.demand[resource]
            if limit is not None and wanted and sum(one.demand[resource] for one in taken) + wanted > limit:
                return resource
        return None

    def _possible(self, job: ModelJob) -> bool:
        bounds = [(self.limit(job.tenant, scope, one), one) for scope in (None, job.project) for one in AT_ONCE]
        return all(limit is None or job.demand[resource] <= limit for limit, resource in bounds)

    # --- money ---

    def counted(self, tenant: int, project: str | None = None) -> Decimal:
        """Spent, and what live jobs may still spend of their holds."""
        own = [job for job in self.jobs.values() if job.tenant == tenant and project in (None, job.project)]
        held = sum((max(job.cost - job.used, Decimal(0)) for job in own if job.state != "ended"), Decimal(0))
        return sum((job.used for job in own), Decimal(0)) + held

    def refusal(self, tenant: int, project: str, cost: Decimal, seats: int) -> str:
        """The code a submit is refused with; "": it is admitted."""
        if any(seats > limit for scope in (None, project) if (limit := self.limit(tenant, scope, SEATS)) is not None):
            return "validation_failed"
        if tenant in self.paused:
            return "tenant_paused"
        for scope in (None, project):
            limit = self.limit(tenant, scope, QUEUED)
            if limit is not None and len(self.of(tenant, "queued", scope)) >= limit:
                return "quota_exceeded"
        for scope in (None, project):
            limit, counted = self.limit(tenant, scope, MONEY), self.counted(tenant, scope)
            if limit is not None and (counted + cost > limit or (cost == 0 and counted >= limit)):
                return "spend_limit_reached"
        return ""
