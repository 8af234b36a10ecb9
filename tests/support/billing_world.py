"""A platform's tenants, plans and usage, made up from a seed: the same seed makes the same world, event for event."""

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from gpu_runtime.protocol.messages import UsageLine
from gpu_runtime.protocol.ordering import PRIORITY_DEFAULT
from tenants.billing.models import DEFAULT_PLAN, PricePlan, PriceShape, PriceVersion, PriorityFactor, TenantPlan
from tenants.billing.seeds import DEFAULT_PRICES
from tenants.billing.usage.works import MeteredWork
from tenants.models import DEFAULT_PROJECT, Project, Tenant
from tenants.scope import platform_scope

VOLUME, PACKAGES = "volume", "packages"
PROJECTS_PER_TENANT = 2
JOBS_PER_TENANT = 6
FREE_SHARE = 0.02  # of events: what the platform had to do again
# What one event of each service says: meter of the units, meter of the time, units at most, microseconds per unit.
SERVICES = (
    ("train.samples", "train.compute_us", 512, 900),
    ("predict.chunks", "predict.compute_us", 64, 4_000),
    ("env.steps", "env.compute_us", 256, 2_500),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldJob:
    """Whose work it is."""

    tenant_id: uuid.UUID
    job_id: uuid.UUID
    project_id: uuid.UUID
    key_id: uuid.UUID | None
    priority: int


@dataclass(slots=True)
class BillingWorld:
    """Tenants on several plans with their jobs. Its dice are its own; call order decides what is rolled."""

    dice: random.Random
    tenants: Sequence[Tenant]
    jobs: Sequence[WorldJob]
    told: int = 0

    def works(self, count: int, *, at: datetime, spread: timedelta = timedelta(0)) -> list[MeteredWork]:
        """``count`` new events of any jobs, each with two lines, within [at, at + spread)."""
        return [self._work(at + self.dice.random() * spread) for _ in range(count)]

    def _work(self, at: datetime) -> MeteredWork:
        job = self.dice.choice(self.jobs)
        units_meter, time_meter, most, unit_us = self.dice.choice(SERVICES)
        units = self.dice.randint(1, most)
        free = self.dice.random() < FREE_SHARE
        self.told += 1
        return MeteredWork(
            tenant_id=job.tenant_id,
            job_id=job.job_id,
            project_id=job.project_id,
            key_id=job.key_id,
            priority=job.priority,
            event_id=f"event-{self.told}",
            lines=(
                UsageLine(meter=units_meter, quantity=units),
                UsageLine(meter=time_meter, quantity=units * self.dice.randint(unit_us // 2, unit_us)),
            ),
            occurred_at=at,
            billable=not free,
            reason="redone_after_restart" if free else "",
        )


def world_make(*, seed: int, tenants: int, start: datetime) -> BillingWorld:
    """Tenants with projects and jobs: two of four on the standard plan, one on graduated prices, one on packages."""
    dice = random.Random(seed)
    with platform_scope():
        plans = [PricePlan.objects.get(code=DEFAULT_PLAN), _volume_plan(start), _package_plan(start)]
        for plan in plans:
            PriorityFactor.objects.create(plan=plan, priority=9, permille=1500, valid_from=start)
            PriorityFactor.objects.create(plan=plan, priority=0, permille=700, valid_from=start)
        rows = [Tenant(pk=_id(dice), name=f"Lab {n}", slug=f"world-{seed}-{n}") for n in range(tenants)]
        Tenant.objects.bulk_create(rows, batch_size=200)
        projects = [_projects(dice, tenant) for tenant in rows]
        Project.objects.bulk_create([project for own in projects for project in own], batch_size=200)
        own_plans = [
            TenantPlan(tenant=tenant, plan=plans[n % 4 - 1], valid_from=start)
            for n, tenant in enumerate(rows)
            if n % 4 >= 2
        ]
        TenantPlan.objects.bulk_create(own_plans, batch_size=200)
    jobs = [job for own in projects for job in _jobs(dice, own)]
    return BillingWorld(dice, rows, jobs)


def _projects(dice: random.Random, tenant: Tenant) -> list[Project]:
    slugs = (DEFAULT_PROJECT, *(f"project-{n}" for n in range(1, PROJECTS_PER_TENANT)))
    return [Project(pk=_id(dice), tenant=tenant, name=slug, slug=slug) for slug in slugs]


def _jobs(dice: random.Random, projects: Sequence[Project]) -> list[WorldJob]:
    key_id = _id(dice)
    return [
        WorldJob(
            tenant_id=projects[0].tenant_id,
            job_id=_id(dice),
            project_id=dice.choice(projects).pk,
            key_id=key_id if dice.random() < 0.5 else None,
            priority=dice.choice([PRIORITY_DEFAULT, PRIORITY_DEFAULT, 0, 9]),
        )
        for _ in range(JOBS_PER_TENANT)
    ]


def _volume_plan(start: datetime) -> PricePlan:
    """Graduated samples, chunks and steps: the first 20,000 of a month at the list price, then half, then a fifth."""
    plan = PricePlan.objects.create(code=VOLUME, name="Volume")
    for meter, amount, per in DEFAULT_PRICES:
        tiers = [(20_000, amount), (100_000, amount / 2), (None, amount / 5)]
        graduated = [{"up_to": up_to, "amount": f"{money:f}"} for up_to, money in tiers]
        shape = {} if "compute" in meter else {"shape": PriceShape.GRADUATED, "tiers": graduated}
        PriceVersion.objects.create(plan=plan, meter=meter, valid_from=start, amount=amount, per=per, **shape)
    return plan


def _package_plan(start: datetime) -> PricePlan:
    """Every begun package of 10 price units is paid whole."""
    plan = PricePlan.objects.create(code=PACKAGES, name="Packages")
    for meter, amount, per in DEFAULT_PRICES:
        PriceVersion.objects.create(
            plan=plan,
            meter=meter,
            valid_from=start,
            amount=amount * Decimal(10),
            per=per * 10,
            shape=PriceShape.PACKAGE,
        )
    return plan


def _id(dice: random.Random) -> uuid.UUID:
    return uuid.UUID(int=dice.getrandbits(128), version=4)
