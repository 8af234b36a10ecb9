"""A billing department in virtual time: usage told in any order, prices, months, credit and corrections.

Every act is told to the platform and to the oracle; `check` compares the books of the two.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal

import time_machine
from django.db import transaction

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.invoices.corrections import credit_note_create, invoice_void, left_of
from tenants.billing.invoices.services import invoice_draft, invoice_finalize
from tenants.billing.ledger.books import outstanding
from tenants.billing.ledger.credits import credit_grant, payment_record
from tenants.billing.ledger.holds import hold_place, hold_release
from tenants.billing.models import DEFAULT_PLAN, BillingMode, Invoice, InvoiceKind, InvoiceState, PricePlan
from tenants.billing.prices.plans import factor_announce, plan_create, price_announce, tenant_plan_set
from tenants.billing.usage.batches import MeteredWork, usage_ingest_batch
from tenants.billing.usage.months import closable_at
from tenants.billing.usage.periods import month_of
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.billing_checks import check_books
from tests.support.billing_oracle import Offer, Oracle
from tests.support.factories import TenantFactory, UserFactory
from tests.support.ledger import give_credit, set_mode

START = dt.datetime(2026, 3, 20, 12, tzinfo=dt.UTC)
SAMPLES, COMPUTE, STEPS = "train.samples", "train.compute_us", "env.steps"
METERS = (SAMPLES, COMPUTE, STEPS)
_DEFAULTS = {SAMPLES: ("0.05", 1000), COMPUTE: ("1.08", 3_600_000_000), STEPS: ("0.01", 1000)}
_FROM_THE_BEGINNING = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_SOON = dt.timedelta(hours=2)
_US_PER_UNIT = 90_000


class BillingDepartment:
    """Two tenants, the second pays ahead. Needs an open test transaction: `close_down` rolls back to its savepoint."""

    def __init__(self) -> None:
        self._savepoint = transaction.savepoint()
        self.oracle = Oracle()
        for meter, (amount, per) in _DEFAULTS.items():
            offer = Offer(valid_from=_FROM_THE_BEGINNING, per=per, tiers=((None, Decimal(amount)),))
            self.oracle.offers[DEFAULT_PLAN, meter].append(offer)
        self.now = START
        self._clock = time_machine.travel(self.now, tick=False)
        self._clock.start()
        self.pending: list[MeteredWork] = []  # happened, not yet told
        self.delivered: list[MeteredWork] = []
        self.jobs: list[tuple[Tenant, uuid.UUID, int]] = []  # with their priority
        self.operator = UserFactory(is_staff=True)
        self.tenants = [TenantFactory(name="Invoiced lab"), TenantFactory(name="Prepaid lab")]
        set_mode(self.tenants[1], BillingMode.PREPAID)
        give_credit(self.tenants[1], "3")

    def close_down(self) -> None:
        self._clock.stop()
        transaction.savepoint_rollback(self._savepoint)

    def check(self) -> None:
        """Raises AssertionError at the first figure that differs from the oracle's."""
        for tenant in self.tenants:
            check_books(tenant, self.oracle)

    # --- work ---------------------------------------------------------------------------------------------------

    def submit(self, which: int, budget: str = "0", priority: int = 5) -> bool:
        """Admit a job with a hold; False if the credit does not suffice."""
        tenant, job_id = self.tenants[which], uuid.uuid4()
        try:
            hold_place(tenant=tenant, job_id=job_id, project_id=None, key_id=None, amount=Decimal(budget))
        except ApplicationError as error:
            if error.code != "insufficient_credit":
                raise
            return False
        self.jobs.append((tenant, job_id, priority))
        return True

    def happen(
        self, job: int, quantities: Sequence[int], meters: Collection[str] = (SAMPLES,), *, billable: bool = True
    ) -> None:
        """Usage of a job, one event per quantity, that will be told some time."""
        tenant, job_id, priority = self.jobs[job % len(self.jobs)]
        for number, quantity in enumerate(quantities):
            lines = (
                UsageLine(meter=meter, quantity=quantity * (_US_PER_UNIT if meter == COMPUTE else 1))
                for meter in sorted(meters)
            )
            self.pending.append(
                MeteredWork(
                    tenant_id=tenant.pk,
                    job_id=job_id,
                    event_id=str(uuid.uuid4()),
                    lines=tuple(lines),
                    occurred_at=self.now - dt.timedelta(seconds=number),
                    billable=billable,
                    reason="" if billable else "redone_after_restart",
                    priority=priority,
                )
            )

    def tell(self, batch: Sequence[MeteredWork]) -> None:
        """Events in this order, known ones among them."""
        with platform_scope():
            assert not usage_ingest_batch(batch, source="journal").refused
        for work in batch:
            self.oracle.tell(work)
        self.delivered += [work for work in batch if work in self.pending]
        self.pending = [work for work in self.pending if work not in batch]

    def contradict(self, known: MeteredWork) -> None:
        """A known id with other content is refused, and nothing changes."""
        lie = MeteredWork(
            tenant_id=known.tenant_id,
            job_id=known.job_id,
            event_id=known.event_id,
            lines=(UsageLine(meter=SAMPLES, quantity=31_337),),
            occurred_at=known.occurred_at,
        )
        with platform_scope():
            assert [item.code for item in usage_ingest_batch([lie], source="journal").refused] == ["usage_conflict"]

    def end(self, job: int) -> None:
        hold_release(job_id=self.jobs[job % len(self.jobs)][1])

    # --- time and prices ----------------------------------------------------------------------------------------

    def wait(self, *, hours: int) -> None:
        self.now += dt.timedelta(hours=hours)
        self._clock.stop()
        self._clock = time_machine.travel(self.now, tick=False)
        self._clock.start()

    def announce_price(self, meter: str, shape: str, amounts: Sequence[Decimal], *, per: int, up_to: int = 0) -> None:
        """From soon on. ``amounts`` of a graduated price: up to the ``up_to``-th unit, and of the rest."""
        plan, graduated = PricePlan.objects.get(code=DEFAULT_PLAN), shape == "graduated"
        tiers = ((up_to, amounts[0]), (None, amounts[1])) if graduated else ((None, amounts[0]),)
        told = [{"up_to": bound, "amount": f"{amount:f}"} for bound, amount in tiers] if graduated else []
        offer = Offer(
            valid_from=self.now + _SOON, per=per, tiers=tiers, package=shape == "package", counts_on=graduated
        )
        if _is_new(
            lambda: price_announce(
                by=self.operator,
                plan=plan,
                meter=meter,
                shape=shape,
                per=per,
                valid_from=offer.valid_from,
                amount=None if graduated else amounts[0],
                tiers=told,
                expected_version=plan.version,
            )
        ):
            self.oracle.offers[DEFAULT_PLAN, meter].append(offer)

    def announce_factor(self, permille: int, *, priority: int = 9) -> None:
        plan, valid_from = PricePlan.objects.get(code=DEFAULT_PLAN), self.now + _SOON
        if _is_new(
            lambda: factor_announce(
                by=self.operator,
                plan=plan,
                priority=priority,
                permille=permille,
                valid_from=valid_from,
                expected_version=plan.version,
            )
        ):
            self.oracle.factors[DEFAULT_PLAN, priority].append((valid_from, permille))

    def change_plan(self, which: int) -> None:
        """To a copy of the standard plan with its prices of today, which later announcements do not touch."""
        code, valid_from = f"plan-{uuid.uuid4().hex[:8]}", self.now + _SOON
        standard = PricePlan.objects.get(code=DEFAULT_PLAN)
        plan = plan_create(by=self.operator, code=code, name=code, currency="EUR", copy_of=standard)
        for meter in METERS:
            in_force = [offer for offer in self.oracle.offers[DEFAULT_PLAN, meter] if offer.valid_from <= self.now]
            self.oracle.offers[code, meter].append(max(in_force, key=lambda offer: offer.valid_from))
        self.oracle.factors[code, 9] += [row for row in self.oracle.factors[DEFAULT_PLAN, 9] if row[0] <= self.now][
            -1:
        ]
        tenant = self.tenants[which]
        if _is_new(lambda: tenant_plan_set(by=self.operator, tenant=tenant, plan=plan, valid_from=valid_from)):
            self.oracle.plans[tenant.pk].append((valid_from, code))

    # --- money --------------------------------------------------------------------------------------------------

    def pay_in(self, which: int, amount: Decimal, *, grant: bool = False) -> None:
        """Twice with one reference, which counts once."""
        tenant, reference = self.tenants[which], str(uuid.uuid4())
        for _ in range(2):
            if grant:
                credit_grant(by=self.operator, tenant=tenant, amount=amount, reason="an outage", reference=reference)
            else:
                payment_record(by=self.operator, tenant=tenant, amount=amount, reference=reference)

    def close(self, which: int, *, months_ago: int = 1) -> None:
        """Close a month twice over; a month that is still open is only drafted."""
        tenant, month = self.tenants[which], month_of(self.now)
        for _ in range(months_ago):
            month = (month - dt.timedelta(days=1)).replace(day=1)
        if self.now < closable_at(month):
            invoice_draft(tenant=tenant, month=month)
            return
        first = invoice_finalize(by=self.operator, tenant=tenant, month=month)
        assert first == invoice_finalize(by=None, tenant=tenant, month=month)
        self.oracle.closed[tenant.pk].add(month)

    def final_invoices(self) -> list[Invoice]:
        with platform_scope():
            rows = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state=InvoiceState.FINAL)
            return list(rows.select_related("tenant").order_by("number"))

    def correct(self, invoice: Invoice) -> None:
        """Take back all that is left of it, if anything is."""
        with platform_scope():
            left = left_of(invoice)
        if left:
            credit_note_create(by=self.operator, invoice=invoice, reason="our mistake")

    def settle(self, invoice: Invoice) -> None:
        """Pay what it still asks for, if anything."""
        with platform_scope():
            owed, reference = outstanding(invoice), str(uuid.uuid4())
        if owed > 0:
            payment_record(by=self.operator, tenant=invoice.tenant, amount=owed, reference=reference, invoice=invoice)

    def void(self, invoice: Invoice) -> None:
        """Refused where money or a credit note went on it."""
        try:
            invoice_void(by=self.operator, invoice=invoice, reason="wrong address")
        except ApplicationError as error:
            if error.status != 409:
                raise


def _is_new(announce: Callable[[], object]) -> bool:
    """Announce; False if something starts at that very moment already, which is refused."""
    try:
        announce()
    except ApplicationError as error:
        if error.code not in {"price_exists", "factor_exists", "plan_exists"}:
            raise
        return False
    return True
