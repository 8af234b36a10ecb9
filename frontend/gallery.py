"""Which films a job's page shows, in a fixed number of queries: page by page, or those of one start side by side."""

from dataclasses import dataclass
from uuid import UUID

from django.core.paginator import Page, Paginator
from django.db.models import Count, Q, QuerySet

from frontend.videos import PER_PAGE, START, Video, Wish, step_limits, video_of
from jobs.models import Artifact, Job
from jobs.selectors.jobs import artifact_list
from jobs.selectors.policies import evaluations_of, policies_of_job, reports_of
from tenants.models import Tenant
from tenants.scope import tenant_scope

ROWS_PER_PAGE = 8  # of one start, several versions each


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The films of one start: the same task and seed, played by different versions."""

    task: str
    seed: str
    videos: tuple[Video, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """``found`` match the wish, ``total`` are there; ``tasks`` and ``versions`` are what can be chosen from.

    ``own``: of an evaluation's own page. ``rows`` in the place of ``videos`` where films are wanted together.
    """

    wish: Wish
    own: bool
    videos: tuple[Video, ...]
    rows: tuple[Row, ...]
    page: Page
    found: int
    total: int
    tasks: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]  # (value, words)
    evaluations: int  # that film or filmed policies of this job

    @property
    def shown(self) -> int:
        return len(self.videos) + sum(len(row.videos) for row in self.rows)


_Told = tuple[tuple[Video, ...], tuple[Row, ...], Page]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Jobs that filmed, and by which name the versions go: ``start_jobs`` played the policy the job started from."""

    jobs: tuple[UUID, ...]
    start_jobs: frozenset[UUID]
    own: bool

    def version_of(self, artifact: Artifact) -> tuple[str, str]:
        if artifact.job_id in self.start_jobs:
            return START, "the start"
        return str(artifact.policy_version), f"version {artifact.policy_version}"


def gallery(tenant: Tenant, job: Job, wish: Wish) -> Gallery:
    """The films of an evaluation; of a training job, those of the evaluations of its policies and of its start."""
    source = _source(tenant, job)
    with tenant_scope(tenant):
        every = artifact_list(tenant, kind="video").filter(job_id__in=source.jobs, deleted_at=None)
        chosen = _chosen(every, wish, source).select_related("job").defer("job__spec")
        tasks = {str(task) for task in every.order_by().values_list("manifest__task", flat=True).distinct() if task}
        versions = _versions(every, source)
        total = every.count() if source.jobs else 0
        read = _together if wish.together else _paged
        videos, rows, page = read(tenant, chosen, wish, source)
    return Gallery(
        wish=wish,
        own=source.own,
        videos=videos,
        rows=rows,
        page=page,
        found=page.paginator.count,
        total=total,
        tasks=tuple(sorted(tasks)),
        versions=versions,
        evaluations=len(source.jobs),
    )


def _source(tenant: Tenant, job: Job) -> _Source:
    if job.kind in {"evaluation", "rollout"}:
        return _Source(jobs=(job.pk,), start_jobs=frozenset(), own=True)
    policies = [policy.pk for policy in policies_of_job(tenant, job)]
    start = [job.policy_id] if job.policy_id else []
    jobs = evaluations_of(tenant, [*policies, *start])
    start_jobs = frozenset(own.pk for own in jobs if own.policy_id == job.policy_id)
    return _Source(jobs=tuple(own.pk for own in jobs), start_jobs=start_jobs, own=False)


def _chosen(videos: QuerySet[Artifact], wish: Wish, source: _Source) -> QuerySet[Artifact]:
    if wish.outcome:
        videos = videos.filter(manifest__outcome=wish.outcome)
    if wish.task:
        videos = videos.filter(manifest__task=wish.task)
    if wish.version == START:
        videos = videos.filter(job_id__in=source.start_jobs)
    elif wish.version:
        videos = videos.filter(policy_version=int(wish.version)).exclude(job_id__in=source.start_jobs)
    if wish.seed:
        videos = videos.filter(manifest__seed=int(wish.seed))
    return videos


def _versions(every: QuerySet[Artifact], source: _Source) -> tuple[tuple[str, str], ...]:
    """What there are films of: the start first, then by number, the newest first."""
    found = set(every.order_by().values_list("policy_version", "job_id").distinct())
    numbers = sorted({version for version, job_id in found if job_id not in source.start_jobs}, reverse=True)
    started = [(START, "the start")] if any(job_id in source.start_jobs for _, job_id in found) else []
    return (*started, *((str(version), f"version {version}") for version in numbers))


def _paged(tenant: Tenant, chosen: QuerySet[Artifact], wish: Wish, source: _Source) -> _Told:
    page = Paginator(chosen, PER_PAGE).get_page(wish.page)
    return _videos(tenant, list(page.object_list), source), (), page


def _together(tenant: Tenant, chosen: QuerySet[Artifact], wish: Wish, source: _Source) -> _Told:
    """Starts that were filmed more than once."""
    starts = chosen.order_by("manifest__task", "manifest__seed").values_list("manifest__task", "manifest__seed")
    page = Paginator(starts.annotate(films=Count("pk")).filter(films__gt=1), ROWS_PER_PAGE).get_page(wish.page)
    pairs = [(task, seed) for task, seed, _ in page.object_list]
    wanted = Q(pk=None)
    for task, seed in pairs:
        wanted |= Q(manifest__task=task, manifest__seed=seed)
    films = _videos(tenant, list(chosen.filter(wanted)), source)
    by_start: dict[tuple[str, str], list[Video]] = {(str(task), str(seed)): [] for task, seed in pairs}
    for film in films:
        by_start[film.task, film.seed].append(film)
    rows = [
        Row(task=task, seed=seed, videos=tuple(sorted(own, key=lambda film: int(film.version.replace(START, "0")))))
        for (task, seed), own in by_start.items()
    ]
    return (), tuple(rows), page


def _videos(tenant: Tenant, films: list[Artifact], source: _Source) -> tuple[Video, ...]:
    limits = {key: step_limits(row.manifest) for key, row in reports_of(tenant, {f.job_id for f in films}).items()}
    told = []
    for film in films:
        version, words = source.version_of(film)
        limit = limits.get(film.job_id, {}).get(str(film.manifest.get("task", "")), "")
        told.append(video_of(film, version=version, version_word=words, limit=limit, own=source.own))
    return tuple(told)
