"""What a tenant's people say of a job: its name, a note, tags, and whether it is archived. The work is not touched."""

from typing import Annotated, Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from pydantic import Field, field_validator

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.ordering import Name, Tag
from jobs import notify
from jobs.models import Job, JobTag
from jobs.selectors.jobs import job_get
from jobs.states import TERMINAL
from tenants.audit.services import audit
from tenants.bodies import parse_body
from tenants.errors import ApplicationError, FieldError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.scope import tenant_scope

TAGS_MAX = 20
NOTE_LENGTH_MAX = 20_000
_TRIES = 3  # each lost compare-and-swap means that somebody else described the job


class JobDescription(Message):
    """What changes; None and absent: nothing."""

    name: Name | None = None
    note: Annotated[str | None, Field(max_length=NOTE_LENGTH_MAX, description="Markdown.")] = None
    tags: Annotated[tuple[Tag, ...] | None, Field(max_length=TAGS_MAX, description="All of them, each once.")] = None
    archived: Annotated[bool | None, Field(description="Not listed unless asked for; only jobs that have ended.")] = (
        None
    )

    @field_validator("tags")
    @classmethod
    def _each_tag_once(cls, tags: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if repeated := sorted({tag for tag in tags or () if (tags or ()).count(tag) > 1}):
            raise ValueError(f"{repeated[0]!r} is given twice; allowed: each tag once")
        return tags


def job_describe(
    *,
    by: Actor | None,
    tenant: Tenant,
    job_id: UUID,
    expected: int | None = None,
    name: str | None = None,
    note: str | None = None,
    tags: Any = None,
    archived: bool | None = None,
) -> Job:
    """Change what is given. ``expected``: the `described` that the caller saw; None: whatever it is now.

    Raises ApplicationError: 404; 422 naming the field; 412 `stale` if somebody else was faster; 409 `job_live` for
    archiving a job that has not ended.
    """
    wanted = parse_body(JobDescription, {"name": name, "note": note, "tags": tags, "archived": archived})
    with tenant_scope(tenant):
        for _ in range(_TRIES):
            job = job_get(tenant, job_id)
            if expected is not None and expected != job.described:
                raise stale(job)
            if _change(job, wanted, by):
                return job_get(tenant, job_id)
        raise stale(job)


def stale(job: Job) -> ApplicationError:
    """The 412 of a change of what its caller has not seen."""
    detail = f"The job was described anew meanwhile; its version is {job.described} now. Read it again, then repeat."
    return ApplicationError(code="stale", status=412, detail=detail, extra={"described": job.described})


@transaction.atomic
def _change(job: Job, wanted: JobDescription, by: Actor | None) -> bool:
    """False if the row is not what was read any more."""
    before, after = _changes(job, wanted)
    if not after:
        return True
    row = Job.objects.filter(pk=job.pk, described=job.described)
    if after.get("archived"):
        _require_ended(job)
        row = row.filter(state__in=TERMINAL)
    columns: dict[str, Any] = {key: value for key, value in after.items() if key in {"name", "note"}}
    if "archived" in after:
        columns["archived_at"] = timezone.now() if after["archived"] else None
    if row.update(**columns, described=F("described") + 1) != 1:
        return False
    if "tags" in after:
        _retag(job, set(before["tags"]), set(after["tags"]))
    audit(by=by, verb=_verb(after), target=job, tenant=job.tenant, name=job.name, before=before, after=after)
    tenant_id, job_id, seq = job.tenant_id, job.pk, job.last_seq
    transaction.on_commit(lambda: notify.wake({(tenant_id, job_id): seq}), robust=True)
    return True


def _changes(job: Job, wanted: JobDescription) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what was, what is to be) of the fields that really change."""
    now: dict[str, Any] = {"name": job.name, "note": job.note, "archived": job.archived_at is not None}
    if wanted.tags is not None:
        now["tags"] = sorted(JobTag.objects.filter(job=job).values_list("name", flat=True))
    asked = wanted.model_dump(exclude_none=True)
    if "tags" in asked:
        asked["tags"] = sorted(asked["tags"])
    after = {key: value for key, value in asked.items() if value != now[key]}
    return {key: now[key] for key in after}, after


def _require_ended(job: Job) -> None:
    if job.state in TERMINAL:
        return
    detail = f"The job is {job.state}. Allowed: archiving one that has ended; cancel it first, or wait."
    error = FieldError(pointer="/archived", code="job_live", detail=detail)
    raise ApplicationError(code="job_live", status=409, detail=detail, errors=(error,))


def _retag(job: Job, before: set[str], after: set[str]) -> None:
    JobTag.objects.filter(job=job, name__in=before - after).delete()
    JobTag.objects.bulk_create(JobTag(tenant=job.tenant, job=job, name=name) for name in sorted(after - before))


def _verb(after: dict[str, Any]) -> str:
    if set(after) == {"archived"}:
        return "job.archived" if after["archived"] else "job.unarchived"
    return "job.described"
