"""A simulated year of billing in virtual time: usage told late, twice and out of order, prices, credit, caps, months.

The platform and the oracle are told the same. At the end every month is closed and both have to agree to the last
place, invoice by invoice, beside everything that `reconcile_billing` compares.
"""

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import time_machine

from jobs.models import DeviceSpan
from jobs.selectors.money import METER_OF_SERVICE
from jobs.services.reconcile import reconcile_billing
from tenants.billing.budgets.services import budget_create, exhausted
from tenants.billing.invoices.corrections import credit_note_create, left_of
from tenants.billing.invoices.services import invoice_finalize
from tenants.billing.ledger.books import outstanding
from tenants.billing.ledger.credits import credit_grant, payment_record
from tenants.billing.ledger.holds import hold_place, hold_release
from tenants.billing.models import (
    BillingMode,
    Invoice,
    InvoiceKind,
    PricePlan,
    PriceVersion,
    PriorityFactor,
    TenantPlan,
)
from tenants.billing.prices.plans import price_announce
from tenants.billing.usage.batches import MeteredWork, usage_ingest_batch
from tenants.billing.usage.months import closable_at
from tenants.billing.usage.periods import month_after
from tenants.billing.usage.selectors import spent
from tenants.identity import Actor
from tenants.models import Role, Tenant
from tenants.scope import platform_scope, tenant_scope
from tests.support.billing_checks import check_books
from tests.support.billing_oracle import Offer, Oracle
from tests.support.billing_world import BillingWorld, world_make
from tests.support.factories import UserFactory
from tests.support.ledger import set_mode

START = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 500
BUDGET = Decimal("0.05")  # a month, hard, of every twentieth tenant
REPEATED, LATE, VERY_LATE = 0.03, 0.05, 0.01  # shares of events: told twice, a week late, after their month is closed
_METER_PRICES = ("train.samples", "predict.chunks", "env.steps")  # that change in turn


@dataclass(slots=True)
class Year:
    """What was done, counted."""

    world: BillingWorld
    oracle: Oracle
    works_per_week: int
    rows: int = 0
    repeats: int = 0
    late: int = 0  # rows on another month's invoice than their own
    ingest_s: float = 0.0
    prices: int = 0
    stopped: set[tuple[uuid.UUID, date]] = field(default_factory=set)  # budgets used up
    overshoot: Decimal = Decimal(0)  # the largest, over a hard budget
    invoices: int = 0
    differences: int = 0


def play(*, seed: int, tenants: int, works_per_week: int, months: int = 12) -> Year:
    """Play it on an empty, migrated database. Raises AssertionError where the books and the oracle differ."""
    world = world_make(seed=seed, tenants=tenants, start=START)
    year = Year(world, _oracle(world), works_per_week)
    with time_machine.travel(START, tick=False) as clock:
        _Player(year, clock).play(months)
    return year


class _Player:
    def __init__(self, year: Year, clock: time_machine.Traveller) -> None:
        self._year, self._world, self._clock = year, year.world, clock
        self._dice = year.world.dice
        self._operator = UserFactory(email="operator@example.org", is_staff=True)
        self._held_back: list[MeteredWork] = []  # told a week late
        self._forgotten: list[MeteredWork] = []  # told after their month was closed
        tenants = {tenant.pk: tenant for tenant in year.world.tenants}
        self._prepaid = [tenant for number, tenant in enumerate(tenants.values()) if number % 10 == 1]
        self._capped = {pk: tenants[pk] for number, pk in enumerate(tenants) if number % 20 == 4}

    def play(self, months: int) -> None:
        self._open()
        month = START.date()
        for _ in range(months):
            self._month(month)
            month = month_after(month)
        self._tell(self._held_back)  # what is still under way comes in the month after the last
        self._go(closable_at(month))
        self._close(month)
        self._judge()

    def _open(self) -> None:
        for tenant in self._prepaid:
            set_mode(tenant, BillingMode.PREPAID)
        for tenant in self._capped.values():
            with tenant_scope(tenant):
                actor = Actor(tenant=tenant, role=Role.OWNER, user=None)
                budget_create(by=actor, project=None, amount=BUDGET, hard=True)

    def _month(self, month: date) -> None:
        begin = datetime(month.year, month.month, 1, tzinfo=UTC)
        self._go(begin)
        holds = list(self._reserve())
        for week in range(4):
            self._week(begin + week * timedelta(days=7), month)
            if week == 1:
                self._announce(month)
        for job_id in holds:
            hold_release(job_id=job_id)
        self._go(closable_at(month))
        self._close(month)
        self._tell(self._forgotten)
        self._forgotten = []

    def _reserve(self) -> Iterator[uuid.UUID]:
        """Prepaid tenants top up and hold credit for one of their jobs."""
        jobs = {job.tenant_id: job for job in self._world.jobs}
        for tenant in self._prepaid:
            amount = Decimal(self._dice.randint(5, 50)) / 100
            self._pay(tenant, amount)
            job = jobs[tenant.pk]
            hold_place(
                tenant=tenant, job_id=job.job_id, project_id=job.project_id, key_id=job.key_id, amount=amount / 2
            )
            yield job.job_id

    def _pay(self, tenant: Tenant, amount: Decimal) -> None:
        reference = f"top-up {self._dice.getrandbits(64)}"
        if self._dice.random() < 0.5:
            payment_record(by=self._operator, tenant=tenant, amount=amount, reference=reference)
        else:
            credit_grant(by=self._operator, tenant=tenant, amount=amount, reason="welcome", reference=reference)

    def _week(self, begin: datetime, month: date) -> None:
        self._go(begin + timedelta(days=7))
        works = self._world.works(self._year.works_per_week, at=begin, spread=timedelta(days=7))
        told, self._held_back = self._held_back, []
        for work in works:
            luck = self._dice.random()
            (self._forgotten if luck < VERY_LATE else self._held_back if luck < VERY_LATE + LATE else told).append(
                work
            )
        self._dice.shuffle(told)
        for first in range(0, len(told), BATCH):
            self._tell(self._allowed(told[first : first + BATCH], month))

    def _allowed(self, works: Sequence[MeteredWork], month: date) -> list[MeteredWork]:
        """Jobs of a tenant whose hard budget is used up do no more work in the month."""
        for tenant_id in {work.tenant_id for work in works} & self._capped.keys():
            if (tenant_id, month) not in self._year.stopped and exhausted(self._capped[tenant_id]):
                self._year.stopped.add((tenant_id, month))
        return [work for work in works if (work.tenant_id, month) not in self._year.stopped]

    def _tell(self, works: Sequence[MeteredWork]) -> None:
        for first in range(0, len(works), BATCH):
            batch = list(works[first : first + BATCH])
            repeats = [work for work in batch if self._dice.random() < REPEATED]
            _measure(batch, span_id=f"span-{self._year.rows}")
            began = time.perf_counter()
            with platform_scope():
                told = usage_ingest_batch([*batch, *repeats], source="journal")
            self._year.ingest_s += time.perf_counter() - began
            assert not told.refused
            for work in batch:
                self._year.oracle.tell(work)
            self._year.rows += sum(len(work.lines) for work in batch)
            self._year.repeats += len(repeats)

    def _announce(self, month: date) -> None:
        """One meter of each plan gets another price from tomorrow on."""
        meter = _METER_PRICES[month.month % 3]
        for plan in PricePlan.objects.order_by("code"):
            in_force = PriceVersion.objects.filter(plan=plan, meter=meter).latest("valid_from")
            percent = self._dice.choice([90, 105, 120])
            tiers = [{**tier, "amount": f"{Decimal(tier['amount']) * percent / 100:.9f}"} for tier in in_force.tiers]
            version = price_announce(
                by=self._operator,
                plan=plan,
                meter=meter,
                shape=in_force.shape,
                per=in_force.per,
                amount=None if tiers else (in_force.amount * percent / 100).quantize(Decimal("1e-9")),
                tiers=tiers,
                valid_from=datetime.now(tz=UTC) + timedelta(days=1),
                expected_version=plan.version,
            )
            self._year.oracle.offers[plan.code, meter].append(_offer(version))
            self._year.prices += 1

    def _close(self, month: date) -> None:
        """Every tenant's month; of the invoices most are paid, a few corrected."""
        for tenant in self._world.tenants:
            invoice = invoice_finalize(by=None, tenant=tenant, month=month)
            self._year.oracle.closed[tenant.pk].add(month)
            if tenant.pk in self._capped:
                over = spent(tenant, month=month) - BUDGET
                self._year.overshoot = max(self._year.overshoot, over)
            if invoice is not None:
                self._year.invoices += 1
                self._after(tenant, invoice)

    def _after(self, tenant: Tenant, invoice: Invoice) -> None:
        luck = self._dice.random()
        with platform_scope():
            owed, left = outstanding(invoice), left_of(invoice)
        if luck < 0.02 and left:
            credit_note_create(by=self._operator, invoice=invoice, reason="an outage of ours")
        elif luck < 0.9 and owed:
            payment_record(
                by=self._operator, tenant=tenant, amount=owed, reference=f"paid {invoice.number}", invoice=invoice
            )

    def _judge(self) -> None:
        self._year.late = sum(line.month != line.invoiced_in for line in self._year.oracle.owed)
        for tenant, own in _by_tenant(self._world.tenants, self._year.oracle):
            check_books(tenant, own)
        with platform_scope():
            drafts = Invoice.objects.filter(kind=InvoiceKind.INVOICE, number=None).count()
        assert drafts == 0
        self._year.differences = reconcile_billing().difference_count
        assert self._year.differences == 0

    def _go(self, moment: datetime) -> None:
        self._clock.move_to(moment)


def _measure(works: Sequence[MeteredWork], *, span_id: str) -> None:
    """What the runtime would have measured for it: one span per service, shared exactly."""
    service_of = {str(meter): service for service, meter in METER_OF_SERVICE.items()}
    shares: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for work in works:
        for line in work.lines:
            if line.meter in service_of:
                shares[service_of[line.meter]][str(work.tenant_id)] += line.quantity
    DeviceSpan.objects.bulk_create(
        DeviceSpan(
            journal_id="journal",
            span_id=f"{span_id}-{service}",
            service=service,
            started_at=datetime.now(tz=UTC),
            busy_us=sum(own.values()),
            overhead_us=0,
            group_size=1,
            samples=1,
            tokens=1,
            shares=dict(own),
        )
        for service, own in shares.items()
    )


def _oracle(world: BillingWorld) -> Oracle:
    """Told what the world is made of."""
    oracle = Oracle()
    with platform_scope():
        for version in PriceVersion.objects.select_related("plan"):
            oracle.offers[version.plan.code, version.meter].append(_offer(version))
        for factor in PriorityFactor.objects.select_related("plan"):
            oracle.factors[factor.plan.code, factor.priority].append((factor.valid_from, factor.permille))
        for row in TenantPlan.objects.filter(tenant__in=world.tenants).select_related("plan"):
            oracle.plans[row.tenant_id].append((row.valid_from, row.plan.code))
    return oracle


def _offer(version: PriceVersion) -> Offer:
    tiers = [(tier["up_to"], Decimal(tier["amount"])) for tier in version.tiers] or [(None, version.amount)]
    return Offer(
        valid_from=version.valid_from,
        per=version.per,
        tiers=tiers,
        package=version.shape == "package",
        counts_on=bool(version.tiers),
    )


def _by_tenant(tenants: Sequence[Tenant], oracle: Oracle) -> Iterator[tuple[Tenant, Oracle]]:
    """The oracle's word on each tenant alone, so that a thousand of them are not searched a thousand times."""
    owed = defaultdict(list)
    for line in oracle.owed:
        owed[line.work.tenant_id].append(line)
    for tenant in tenants:
        yield tenant, Oracle(owed=owed[tenant.pk])
