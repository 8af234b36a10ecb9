"""One act on many jobs: each succeeds or is refused on its own, and the answer says which."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from django.db import transaction

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.ordering import Tag
from jobs.models import Job, JobTag
from jobs.services.cancel import job_cancel
from jobs.services.describe import job_describe
from tenants.bodies import parse_body
from tenants.errors import ApplicationError, invalid
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.scope import tenant_scope

JOBS_MAX = 200


class BulkAction(StrEnum):
    """What is done to each job."""

    CANCEL = "cancel"  # ask it to stop
    ARCHIVE = "archive"  # only what has ended
    UNARCHIVE = "unarchive"
    TAG = "tag"  # put one tag on
    UNTAG = "untag"  # take one tag off

    @property
    def needs_tag(self) -> bool:
        return self in {BulkAction.TAG, BulkAction.UNTAG}


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """What became of one job. ``code`` and ``detail`` are empty if it is done, else they say why not.

    ``number`` and ``name`` are None for a job that does not exist for the caller.
    """

    job_id: UUID
    number: int | None = None
    name: str | None = None
    state: str | None = None
    code: str = ""
    detail: str = ""

    @property
    def done(self) -> bool:
        return not self.code


class _OneTag(Message):
    """The tag of an act that needs one."""

    tag: Tag


@transaction.atomic
def jobs_act(
    *, by: Actor | None, tenant: Tenant, job_ids: Sequence[UUID], action: BulkAction, tag: str = ""
) -> tuple[BulkResult, ...]:
    """Do ``action`` to each of at most 200 jobs, in the order given; what one refuses stops no other.

    Raises ApplicationError 422 for no or too many ids, and for a tag that is missing, not allowed or not wanted.
    """
    ids = tuple(dict.fromkeys(job_ids))
    if not 0 < len(ids) <= JOBS_MAX:
        raise invalid("/jobs", "wrong_number", f"{len(ids)} jobs. Allowed: 1 to {JOBS_MAX} ids.")
    _require_tag(action, tag)
    with tenant_scope(tenant):
        # All rows first and in one order: no other lock is held yet, and two acts at once wait for each other.
        rows = Job.objects.select_for_update(of=("self",)).filter(pk__in=ids).order_by("pk")
        list(rows.values_list("pk", flat=True))
        tags = _tags_of(ids) if action.needs_tag else {}
        return tuple(_act(by, tenant, job_id, action, tag, tags.get(job_id, frozenset())) for job_id in ids)


def _require_tag(action: BulkAction, tag: str) -> None:
    if action.needs_tag:
        parse_body(_OneTag, {"tag": tag})
    elif tag:
        raise invalid("/tag", "not_wanted", f"{action.value} takes no tag; got {tag!r}.")


def _tags_of(ids: Sequence[UUID]) -> dict[UUID, frozenset[str]]:
    found: dict[UUID, frozenset[str]] = {}
    for job_id, name in JobTag.objects.filter(job_id__in=ids).values_list("job_id", "name"):
        found[job_id] = found.get(job_id, frozenset()) | {name}
    return found


def _act(
    by: Actor | None, tenant: Tenant, job_id: UUID, action: BulkAction, tag: str, tags: frozenset[str]
) -> BulkResult:
    try:
        with transaction.atomic():  # a refusal undoes its own part only
            job = _one(by, tenant, job_id, action, tag, tags)
    except ApplicationError as error:
        return _refused(job_id, error)
    return BulkResult(job_id=job_id, number=job.number, name=job.name, state=job.state)


def _refused(job_id: UUID, error: ApplicationError) -> BulkResult:
    """Of a job that does not exist for the caller nothing is told."""
    detail = error.errors[0].detail if error.errors else error.detail
    row = Job.objects.filter(pk=job_id).only("number", "name", "state").first() if error.status != 404 else None
    if row is None:
        return BulkResult(job_id=job_id, code=error.code, detail=detail)
    told = BulkResult(job_id=job_id, number=row.number, name=row.name, state=row.state)
    return replace(told, code=error.code, detail=detail)


def _one(by: Actor | None, tenant: Tenant, job_id: UUID, action: BulkAction, tag: str, tags: frozenset[str]) -> Job:
    match action:
        case BulkAction.CANCEL:
            return job_cancel(tenant=tenant, job_id=job_id, by=by)
        case BulkAction.ARCHIVE | BulkAction.UNARCHIVE:
            return job_describe(by=by, tenant=tenant, job_id=job_id, archived=action == BulkAction.ARCHIVE)
        case BulkAction.TAG:
            return job_describe(by=by, tenant=tenant, job_id=job_id, tags=sorted(tags | {tag}))
        case BulkAction.UNTAG:
            return job_describe(by=by, tenant=tenant, job_id=job_id, tags=sorted(tags - {tag}))
