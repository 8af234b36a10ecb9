"""What somebody should look at now, each with the page that helps. A fixed number of queries."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode

from frontend.home.work import Work
from frontend.templatetags.console import money, money_whole
from jobs.selectors.filters import JobFilter
from jobs.selectors.jobs import job_list
from jobs.selectors.runtime import RuntimeReport, RuntimeState
from jobs.states import JobState
from tenants.billing.budgets.reads import BudgetState
from tenants.billing.models import Budget
from tenants.billing.usage.costs import Cost
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.selectors import version_list
from tenants.identity import Actor
from tenants.models import TenantState
from tenants.permissions import Permission
from tenants.webhooks.selectors import endpoint_list

LOOK_BACK_DAYS = 7
SHOWN = 5  # of each kind
NEAR = Decimal("0.8")  # of a cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """``tone``: the state whose colour it has. ``at``: when it came up; None: it is so now."""

    tone: str
    title: str
    text: str
    url: str
    at: datetime | None = None


def matters(
    actor: Actor, work: Work, budgets: Collection[BudgetState], runtime: RuntimeReport | None, *, now: datetime
) -> list[Matter]:
    """Of what the actor may read: what is wrong now, then by time, the newest first."""
    found = [*_platform(actor, runtime), *_budgets(budgets), *_caps(work)]
    dated = [*_failed(actor, now), *_datasets(actor, now), *_webhooks(actor)]
    return found + sorted(dated, key=lambda matter: matter.at or now, reverse=True)


def _platform(actor: Actor, runtime: RuntimeReport | None) -> Iterator[Matter]:
    if actor.tenant.state == TenantState.PAUSED:
        why = actor.tenant.paused_reason or "no reason was given"
        text = f"No new jobs are taken: {why}."
        yield Matter(tone="failed", title="Your lab is paused", text=text, url=reverse("frontend:jobs"))
    if runtime is None:
        return
    url = reverse("frontend:runtime")
    if runtime.state is RuntimeState.UNREACHABLE:
        text = "Queued jobs start when it is back. What is shown of running ones is from then."
        yield Matter(tone="failed", title="Runtime not reachable", text=text, url=url, at=runtime.seen_at)
    elif runtime.state is RuntimeState.NOT_ACCEPTING:
        text = f"{runtime.reason or 'No reason was given'}. Running jobs go on; queued ones wait."
        yield Matter(tone="cancelling", title="Runtime takes no new work", text=text, url=url)


def _budgets(budgets: Collection[BudgetState]) -> Iterator[Matter]:
    """Alerts of this month, the highest of each budget."""
    for state in budgets:
        if not state.told or state.told[-1] < 80:
            continue
        budget, spent = state.budget, Cost(amount=state.spent, currency=state.budget.tenant.currency, lines=())
        end = " Jobs stop when it is used up." if budget.hard else ""
        text = f"{money(spent)} of {money_whole(budget.amount, spent.currency)} spent this month.{end}"
        tone = "failed" if state.told[-1] >= 100 else "cancelling"
        title = f"{_whose(budget)} at {state.told[-1]}\u00a0%"
        yield Matter(tone=tone, title=title, text=text, url=_first_of("frontend:budgets", "frontend:invoices"))


def _whose(budget: Budget) -> str:
    return f"Budget of {budget.project.name}" if budget.project else "Budget of the lab"


def _caps(work: Work) -> Iterator[Matter]:
    """Running jobs that have spent most of what they may."""
    for row in work.running:
        cap, cost = (row.job.spec.get("budget") or {}).get("max_cost"), work.costs[row.job.pk]
        if cap is None or cost.amount < NEAR * Decimal(cap):
            continue
        text = f"{money(cost)} of {money_whole(Decimal(cap), cost.currency)} spent. It stops there and keeps its work."
        title = f"{row.job.name} is near its cap"
        yield Matter(tone="cancelling", title=title, text=text, url=reverse("frontend:job", args=[row.job.pk]))


def _failed(actor: Actor, now: datetime) -> Iterator[Matter]:
    """Archiving a failed job is how one says that one has seen it."""
    failed = job_list(actor.tenant, JobFilter(state=JobState.FAILED, ended_days=LOOK_BACK_DAYS))
    rows = list(failed.prefetch_related(None).order_by("-finished_at", "-number")[: SHOWN + 1])
    for job in rows[:SHOWN]:
        text = job.message or job.reason.replace("_", " ") or "No reason was told."
        url = reverse("frontend:job", args=[job.pk])
        yield Matter(tone="failed", title=f"{job.name} failed", text=text, url=url, at=job.finished_at)
    if len(rows) > SHOWN:
        url = f"{reverse('frontend:jobs')}?{urlencode({'state': JobState.FAILED.value, 'ended': str(LOOK_BACK_DAYS)})}"
        text = f"Of the last {LOOK_BACK_DAYS} days. Archive those you have seen."
        yield Matter(tone="failed", title="More failed jobs", text=text, url=url, at=rows[-1].finished_at)


def _datasets(actor: Actor, now: datetime) -> Iterator[Matter]:
    """Uploads that cannot be used, unless a newer version of the same dataset can."""
    if not actor.may(Permission.DATASETS_READ):
        return
    recent = version_list(actor.tenant).filter(created_at__gte=now - timedelta(days=LOOK_BACK_DAYS))
    newest: dict[UUID, DatasetVersion] = {}
    for version in recent.only("number", "state", "reason", "created_at", "dataset__name")[:50]:
        newest.setdefault(version.dataset_id, version)
    for version in list(newest.values())[:SHOWN]:
        if version.state == VersionState.INVALID:
            title = f"{version.dataset.name}, version {version.number}, cannot be used"
            url = reverse("frontend:dataset", args=[version.dataset_id])
            text = version.reason or "Its report says why."
            yield Matter(tone="failed", title=title, text=text, url=url, at=version.created_at)


def _webhooks(actor: Actor) -> Iterator[Matter]:
    if not actor.may(Permission.WEBHOOKS_MANAGE):
        return
    url = _first_of("frontend:settings_webhooks", "frontend:home")
    rows = endpoint_list(actor.tenant).filter(failing_since__isnull=False).order_by("-failing_since")[:SHOWN]
    for endpoint in rows:
        if endpoint.disabled_at is None:
            text, at = "It has not answered since then. It is switched off after five days.", endpoint.failing_since
            yield Matter(tone="cancelling", title=f"Webhook {endpoint.url} fails", text=text, url=url, at=at)
        else:
            text, at = endpoint.disabled_reason or "It did not answer for five days.", endpoint.disabled_at
            yield Matter(tone="failed", title=f"Webhook {endpoint.url} is switched off", text=text, url=url, at=at)


def _first_of(*names: str) -> str:
    for name in names:
        try:
            return reverse(name)
        except NoReverseMatch:
            continue
    return reverse("frontend:home")
