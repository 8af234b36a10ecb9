"""The tabs of a job's page: which there are, and what each of them alone reads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from frontend.views.charts import charts_context
from frontend.views.job.events import events_context
from frontend.views.job.logs import logs_context
from frontend.views.job.spec import spec_context
from frontend.views.results import checkpoints_context, evaluation_context, rollouts_context
from jobs.models import ArtifactKind, Job
from jobs.selectors.jobs import artifact_list, policy_version_list
from tenants.models import Tenant
from tenants.requests import PageRequest
from tenants.scope import tenant_scope

Context = Callable[[PageRequest, Job], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One part of a job's page; its template is ``console/job/<name>.html`` unless it says otherwise."""

    name: str
    title: str
    context: Context
    template: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedTab:
    """A link to a tab; ``count`` None where there is nothing to count."""

    name: str
    title: str
    count: int | None


def _tab(name: str, title: str, context: Context, template: str = "") -> Tab:
    return Tab(name=name, title=title, context=context, template=template or f"console/job/{name}.html")


TABS = (
    _tab("charts", "Charts", charts_context, "console/parts/charts.html"),
    _tab("rollouts", "Rollouts", rollouts_context),
    _tab("checkpoints", "Checkpoints", checkpoints_context),
    _tab("evaluation", "Evaluation", evaluation_context),
    _tab("events", "Events", events_context),
    _tab("logs", "Logs", logs_context),
    _tab("spec", "Spec", spec_context),
)
_BY_NAME = {tab.name: tab for tab in TABS}


def tab_of(request: PageRequest, job: Job) -> Tab:
    """The tab that the address names; else that which says most about a job of this kind."""
    usual = "evaluation" if job.kind == "evaluation" and job.finished_at is not None else "charts"
    return _BY_NAME.get(request.GET.get("tab", ""), _BY_NAME[usual])


def tab_counts(tenant: Tenant, job: Job) -> tuple[CountedTab, ...]:
    """Every tab in order, with how much is in it where that is known for two queries."""
    with tenant_scope(tenant):
        by_kind = artifact_list(tenant, job.pk).order_by().values_list("kind").annotate(count=Count("pk"))
        counts = {"rollouts": dict(by_kind).get(ArtifactKind.VIDEO, 0)}
        counts["checkpoints"] = policy_version_list(tenant, job.pk).count()
    return tuple(CountedTab(name=tab.name, title=tab.title, count=counts.get(tab.name) or None) for tab in TABS)
