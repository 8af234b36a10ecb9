"""What the search of the top bar finds: a few jobs, datasets and policies of one tenant."""

from dataclasses import dataclass

from django.urls import reverse
from django.utils.http import urlencode

from frontend.facts import kind_word
from frontend.policies import trained_words
from frontend.templatetags.console import handle, run_slot
from jobs.selectors.filters import JobFilter
from jobs.selectors.jobs import job_list
from jobs.selectors.policies import PolicyFilter, policy_list
from tenants.datasets.selectors import dataset_list
from tenants.identity import Actor
from tenants.permissions import Permission

QUERY_MAX = 200  # characters; no name is longer
JOBS_SHOWN, OTHERS_SHOWN = 6, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One line. ``state``: of a job; ``slot``: its run colour."""

    title: str
    detail: str
    url: str
    state: str = ""
    slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Of one kind. ``more``: the page that lists all of them, if there are more than shown."""

    title: str
    icon: str
    hits: tuple[Hit, ...]
    more: str = ""


def query_of(text: str | None) -> str:
    """What somebody typed, as it can be asked for: PostgreSQL takes no NUL."""
    return (text or "").replace("\0", "").strip()[:QUERY_MAX]


def search(actor: Actor, query: str) -> tuple[Hits, ...]:
    """Kinds with hits, of what the actor may read. At most one query each, and one for the jobs' tags."""
    if not query:
        return ()
    found = []
    if actor.may(Permission.JOBS_READ):
        found.append(_jobs(actor, query))
    if actor.may(Permission.DATASETS_READ):
        found.append(_datasets(actor, query))
    if actor.may(Permission.JOBS_READ):
        found.append(_policies(actor, query))
    return tuple(own for own in found if own.hits)


def _jobs(actor: Actor, query: str) -> Hits:
    jobs = list(job_list(actor.tenant, JobFilter(query=query, archived=None))[: JOBS_SHOWN + 1])
    hits = tuple(
        Hit(
            title=job.name,
            detail=" · ".join([handle(job.number), kind_word(job.kind), *(tag.name for tag in job.tags.all())]),
            url=reverse("frontend:job", args=[job.pk]),
            state=job.state,
            slot=run_slot(job.number),
        )
        for job in jobs[:JOBS_SHOWN]
    )
    more = f"{reverse('frontend:jobs')}?{urlencode({'q': query})}" if len(jobs) > JOBS_SHOWN else ""
    return Hits(title="Jobs", icon="jobs", hits=hits, more=more)


def _datasets(actor: Actor, query: str) -> Hits:
    datasets = dataset_list(actor.tenant).prefetch_related(None).filter(name__icontains=query).order_by("name")
    rows = list(datasets[: OTHERS_SHOWN + 1])
    hits = tuple(
        Hit(
            title=row.name,
            detail=f"Dataset, newest version {row.newest_number}",
            url=reverse("frontend:dataset", args=[row.pk]),
        )
        for row in rows[:OTHERS_SHOWN]
    )
    more = reverse("frontend:datasets") if len(rows) > OTHERS_SHOWN else ""
    return Hits(title="Datasets", icon="data", hits=hits, more=more)


def _policies(actor: Actor, query: str) -> Hits:
    rows = list(policy_list(actor.tenant, PolicyFilter(query=query))[: OTHERS_SHOWN + 1])
    hits = tuple(
        Hit(
            title=f"{row.job.name}, version {row.policy_version}",
            detail=f"{trained_words(row.job)} · {row.job.base_model}, {row.job.head} head",
            url=reverse("frontend:policy", args=[row.pk]),
            slot=run_slot(row.job.number),
        )
        for row in rows[:OTHERS_SHOWN]
    )
    more = f"{reverse('frontend:policies')}?{urlencode({'q': query})}" if len(rows) > OTHERS_SHOWN else ""
    return Hits(title="Policies", icon="policy", hits=hits, more=more)
