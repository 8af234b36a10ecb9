"""What admission finds: what a job starts from, and how a refusal is put together."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from gpu_runtime.protocol.messages import BaseModelInfo
from jobs.models import Artifact
from jobs.selectors.runtime import runtime_bases
from tenants.datasets.models import DatasetVersion
from tenants.errors import ApplicationError, FieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Demonstrations or a policy, and the base model and head that follow from the specification or the policy."""

    base_model: str
    head: str
    dataset_version: DatasetVersion | None = None
    policy: Artifact | None = None


def refused(errors: Sequence[FieldError]) -> ApplicationError:
    """Every disagreement at once."""
    names = ", ".join(error.pointer for error in errors)
    detail = f"The job cannot run as asked: see {names}."
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=tuple(errors))


def resident_base(name: str) -> tuple[bool, BaseModelInfo | None]:
    """(is it one of this deployment's, what the runtime reported of it; None before it was first seen)."""
    return name in settings.JOYNEXUS_BASE_MODELS, runtime_bases().get(name)


def bases_allowed() -> str:
    return ", ".join(settings.JOYNEXUS_BASE_MODELS)
