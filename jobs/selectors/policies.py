"""Policies: adapters that jobs published, what evaluations found of them, and what was started from them."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from django.db.models import Count, F, FloatField, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from jobs.models import Artifact, ArtifactKind, Job
from jobs.selectors.jobs import artifact_list, job_list
from jobs.states import LIVE
from tenants.access import access_row
from tenants.models import Tenant
from tenants.scope import tenant_scope

EVALUATIONS_MAX = 200  # of one or several policies, the newest
LIVE_HEIRS_SHOWN = 5
ANCESTORS_MAX = 6  # policies behind a policy; each is a look-up of one row


class PolicySort(StrEnum):
    """In which order policies are listed."""

    NEWEST = "newest"  # by the time they were made
    OLDEST = "oldest"
    NAME = "name"  # of the job that made them
    SUCCESS = "success"  # success once in the newest evaluation, the best first
    SIZE = "size"  # the largest first


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFilter:
    """What is listed; an empty text asks for nothing. ``query``: in the job's name, ``J-12``, or an id."""

    query: str = ""
    base_model: str = ""
    head: str = ""
    kind: str = ""  # of the job that trained it: "sft" or "rl"
    deleted: bool = False  # those whose files are deleted too
    sort: PolicySort = PolicySort.NEWEST


_ORDERS = {
    PolicySort.NEWEST: ("-created_at", "-pk"),
    PolicySort.OLDEST: ("created_at", "pk"),
    PolicySort.NAME: ("job__name", "-created_at", "-pk"),
    PolicySort.SUCCESS: (F("success").desc(nulls_last=True), "-created_at", "-pk"),
    PolicySort.SIZE: ("-size_bytes", "-created_at", "-pk"),
}


def policy_list(tenant: Tenant, wanted: PolicyFilter | None = None) -> QuerySet[Artifact]:
    """Published adapters with their jobs, without their manifests."""
    wanted = wanted or PolicyFilter()
    with tenant_scope(tenant):
        rows = _with_origin(artifact_list(tenant, kind=ArtifactKind.ADAPTER)).defer(*_HEAVY, "manifest")
        if wanted.sort is PolicySort.SUCCESS:
            rows = rows.annotate(success=_newest_success())
    if not wanted.deleted:
        rows = rows.filter(deleted_at=None)
    if wanted.query:
        rows = rows.filter(_matching(wanted.query))
    exact = {"job__base_model": wanted.base_model, "job__head": wanted.head, "job__kind": wanted.kind}
    rows = rows.filter(**{name: value for name, value in exact.items() if value})
    return rows.order_by(*_ORDERS[wanted.sort])


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoices:
    """What a tenant's policies can be filtered by."""

    base_models: tuple[str, ...]
    heads: tuple[str, ...]


def policy_choices(tenant: Tenant) -> PolicyChoices:
    """What there is among all policies of the tenant, deleted ones too."""
    with tenant_scope(tenant):
        rows = artifact_list(tenant, kind=ArtifactKind.ADAPTER).order_by()
        found = set(rows.values_list("job__base_model", "job__head").distinct())
    bases, heads = {base for base, _ in found}, {head for _, head in found}
    return PolicyChoices(base_models=tuple(sorted(bases)), heads=tuple(sorted(heads)))


def policy_get(tenant: Tenant, policy_id: UUID) -> Artifact:
    """One adapter with its manifest. Raises the same 404 for a missing one, a foreign one, and any other file."""
    with tenant_scope(tenant):
        rows = _with_origin(artifact_list(tenant, kind=ArtifactKind.ADAPTER)).defer(*_HEAVY)
        return access_row(rows, "policy", pk=policy_id)


def policies_by_id(tenant: Tenant, ids: Collection[UUID]) -> list[Artifact]:
    """Adapters with their manifests, in the order of ``ids``; what is not one of the tenant's is left out."""
    with tenant_scope(tenant):
        rows = _with_origin(artifact_list(tenant, kind=ArtifactKind.ADAPTER)).defer(*_HEAVY).in_bulk(list(ids))
    return [rows[own] for own in dict.fromkeys(ids) if own in rows]


def policies_of_job(tenant: Tenant, job: Job) -> list[Artifact]:
    """The adapters a job published, newest first, deleted ones too."""
    with tenant_scope(tenant):
        rows = artifact_list(tenant, kind=ArtifactKind.ADAPTER).filter(job_id=job.pk).select_related("job")
        return list(rows.defer("job__spec"))


def ancestors_of(tenant: Tenant, policy: Artifact | None) -> list[Artifact]:
    """The policy and those behind it, the oldest first: at most ANCESTORS_MAX, without manifests."""
    found: list[Artifact] = []
    with tenant_scope(tenant):
        rows = _with_origin(artifact_list(tenant)).defer(*_HEAVY, "manifest")
        while policy is not None and len(found) < ANCESTORS_MAX:
            own = rows.filter(pk=policy.pk).first()
            if own is None:
                break
            found.insert(0, own)
            policy = own.job.policy
    return found


def heirs_of_policies(tenant: Tenant, policy_ids: Collection[UUID]) -> QuerySet[Job]:
    """Jobs that start from one of these, newest first."""
    return job_list(tenant).filter(policy_id__in=list(policy_ids))


def heir_counts(tenant: Tenant, policy_ids: Collection[UUID]) -> dict[UUID, dict[str, int]]:
    """By policy: how many jobs of each kind start from it."""
    counts: dict[UUID, dict[str, int]] = {own: {} for own in policy_ids}
    rows = heirs_of_policies(tenant, policy_ids).order_by().values_list("policy_id", "kind").annotate(n=Count("pk"))
    for policy_id, kind, count in rows:
        counts[policy_id][kind] = count
    return counts


def live_heirs(tenant: Tenant, policy_id: UUID) -> list[Job]:
    """Jobs that start from it and have not ended: while there is one, it cannot be deleted."""
    return list(heirs_of_policies(tenant, [policy_id]).filter(state__in=LIVE)[:LIVE_HEIRS_SHOWN])


def evaluations_of(tenant: Tenant, policy_ids: Collection[UUID]) -> list[Job]:
    """The newest evaluations of these policies, whatever their state."""
    if not policy_ids:
        return []
    return list(heirs_of_policies(tenant, policy_ids).filter(kind="evaluation")[:EVALUATIONS_MAX])


def reports_of(tenant: Tenant, job_ids: Collection[UUID]) -> dict[UUID, Artifact]:
    """The newest evaluation report of each job that has one, deleted files too: their manifests stay."""
    if not job_ids:
        return {}
    with tenant_scope(tenant):
        rows = artifact_list(tenant, kind=ArtifactKind.EVALUATION).filter(job_id__in=list(job_ids))
        return {row.job_id: row for row in reversed(rows)}


def newest_reports(tenant: Tenant, policy_ids: Collection[UUID]) -> dict[UUID, Artifact]:
    """By policy: the report of its newest evaluation that has one, with its job. Two queries, however many."""
    if not policy_ids:
        return {}
    with tenant_scope(tenant):
        reports = artifact_list(tenant, kind=ArtifactKind.EVALUATION).filter(job__policy__in=list(policy_ids))
        newest = reports.order_by().values("job__policy").annotate(at=Max("created_at"))
        wanted = Q(pk=None)
        for row in newest:
            wanted |= Q(job__policy=row["job__policy"], created_at=row["at"])
        found = reports.filter(wanted).select_related("job").defer("job__spec")
        return {row.job.policy_id: row for row in reversed(found) if row.job.policy_id is not None}


_HEAVY = ("job__policy__manifest", "job__policy__job__spec")


def _with_origin(rows: QuerySet[Artifact]) -> QuerySet[Artifact]:
    return rows.select_related("job__project", "job__dataset_version__dataset", "job__policy__job")


def _newest_success() -> Subquery:
    reports = Artifact.objects.filter(kind=ArtifactKind.EVALUATION, job__policy=OuterRef("pk"))
    rate = Cast(KT("manifest__overall__success_once__rate"), FloatField())  # both databases sort a number alike
    return Subquery(reports.order_by("-created_at").annotate(rate=rate).values("rate")[:1])


def _matching(query: str) -> Q:
    wanted = Q(job__name__icontains=query)
    number = query.upper().removeprefix("J-")
    if number.isascii() and number.isdigit() and len(number) <= 9:
        wanted |= Q(job__number=int(number))
    try:
        own = UUID(query)
    except ValueError:
        return wanted
    return wanted | Q(pk=own) | Q(job_id=own)
