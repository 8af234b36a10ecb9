"""What stands in the form before it is drawn: from a query string, from what was posted, from an earlier job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.http import QueryDict

from frontend.forms.posted import Texts, spec_of, texts_of
from frontend.forms.presets import preset_texts
from frontend.forms.schema import job_form
from frontend.forms.walk import effective_texts
from jobs.models import ArtifactKind, Job
from jobs.selectors.jobs import artifact_get, job_get
from tenants.datasets.models import VersionState
from tenants.datasets.selectors import version_get
from tenants.errors import ApplicationError
from tenants.models import DEFAULT_PROJECT, Tenant

KIND_DEFAULT = "sft"
KEY_FIELD = "idempotency_key"
NO_BOX = "[]"
_OWN_FIELDS = (KEY_FIELD, "csrfmiddlewaretoken")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """``key``: one submission of this form. ``parent``: the cloned job. ``notes``: what could not be filled in."""

    texts: Texts
    key: str
    parent: Job | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def spec(self) -> Any:
        return spec_of(job_form(), self.texts)

    @property
    def parent_texts(self) -> Texts | None:
        """Every setting of the parent in words, its defaults too."""
        if self.parent is None:
            return None
        return dict(effective_texts(job_form(), clone_texts(self.parent)))


def draft_of_query(tenant: Tenant, query: Mapping[str, str]) -> Draft:
    """What the link asks for. Raises the 404 of a job that is not the tenant's; other values are told if unusable."""
    notes: list[str] = []
    parent = _parent(tenant, query["from"]) if query.get("from") else None
    texts = clone_texts(parent) if parent else {}
    policy, dataset = _policy(tenant, query, notes), _dataset(tenant, query, notes)
    texts["kind"] = _kind(query, notes) or texts.get("kind") or ("evaluation" if policy else KIND_DEFAULT)
    texts |= {"policy.artifact": policy} if policy else {}
    texts |= {"dataset.id": dataset} if dataset else {}
    return Draft(texts=texts, key=str(uuid4()), parent=parent, notes=tuple(notes))


def draft_of_post(tenant: Tenant, posted: QueryDict) -> Draft:
    """What was typed; ``preset``, ``add`` and ``remove`` are buttons that change it."""
    texts = {name: _typed(values) for name, values in posted.lists() if name not in _OWN_FIELDS}
    preset, added, removed = (texts.pop(name, "") for name in ("preset", "add", "remove"))
    texts |= preset_texts(texts.get("kind", ""), preset)
    if added:
        texts = _with_row(texts, added)
    if removed:
        texts = _without_row(texts, removed)
    key = posted.get(KEY_FIELD, "")
    is_usable = key.isprintable() and 0 < len(key) <= 100
    return Draft(texts=texts, key=key if is_usable else str(uuid4()), parent=_cloned(tenant, texts))


def clone_texts(job: Job) -> Texts:
    """What the form says for an earlier job; its tags and project are those it has now."""
    spec = job.spec | {"tags": [tag.name for tag in job.tags.order_by("pk")], "cloned_from": str(job.pk)}
    if job.project.slug != DEFAULT_PROJECT:
        spec["project"] = job.project.slug
    return texts_of(job_form(), spec)


def _typed(values: Sequence[Any]) -> str:
    """One text per field. Boxes send an empty list first and then what is ticked, under one name."""
    if len(values) > 1 and values[0] == NO_BOX:
        return ", ".join(map(str, values[1:]))
    return str(values[-1]).replace("\r\n", "\n") if values else ""


def _parent(tenant: Tenant, job_id: str) -> Job:
    try:
        return job_get(tenant, UUID(job_id))
    except ValueError:
        raise ApplicationError(code="not_found", status=404, detail="There is no such job.") from None


def _cloned(tenant: Tenant, texts: Texts) -> Job | None:
    """The parent of a posted form; what is wrong with its id is said when the form is judged."""
    try:
        return job_get(tenant, UUID(texts["cloned_from"])) if texts.get("cloned_from") else None
    except (ValueError, ApplicationError):
        return None


def _kind(query: Mapping[str, str], notes: list[str]) -> str:
    kind, allowed = query.get("kind", ""), job_form().options
    if kind and kind not in allowed:
        notes.append(f"There is no kind {kind!r}; choose one of the {len(allowed)} below.")
    return kind if kind in allowed else ""


def _policy(tenant: Tenant, query: Mapping[str, str], notes: list[str]) -> str:
    wanted = query.get("policy", "")
    if not wanted:
        return ""
    try:
        row = artifact_get(tenant, UUID(wanted))
    except (ValueError, ApplicationError):
        row = None
    if row is None or row.kind != ArtifactKind.ADAPTER or row.deleted_at is not None:
        notes.append("The policy of this link does not exist here, or is not kept any more; choose another.")
        return ""
    return str(row.pk)


def _dataset(tenant: Tenant, query: Mapping[str, str], notes: list[str]) -> str:
    wanted = query.get("dataset", "")
    if not wanted:
        return ""
    try:
        row = version_get(tenant, wanted)
    except ApplicationError:
        row = None
    if row is None or row.state != VersionState.READY:
        notes.append("The dataset version of this link does not exist here, or is not ready; choose another.")
        return ""
    return str(row.pk)


def _with_row(texts: Texts, rows: str) -> Texts:
    """One row more, after the last one."""
    numbers = [number for name in texts if (number := _number_of(name, rows)) is not None]
    return texts | {f"{rows}.{max(numbers, default=0) + 1}.id": ""}


def _without_row(texts: Texts, which: str) -> Texts:
    rows, _, number = which.rpartition(".")
    return {name: text for name, text in texts.items() if not name.startswith(f"{rows}.{number}.")}


def _number_of(name: str, rows: str) -> int | None:
    head, _, rest = name.partition(f"{rows}.")
    number = rest.partition(".")[0]
    return int(number) if not head and number.isdecimal() and len(number) <= 4 else None
