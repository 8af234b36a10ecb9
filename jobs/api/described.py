"""What describes jobs over REST: the optional If-Match of one, and the body and answer of an act on many."""

from typing import Annotated, Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework import serializers

from gpu_runtime.protocol.base import Message
from jobs.services.bulk import JOBS_MAX, BulkAction
from tenants.preconditions import etag_of
from tenants.requests import TenantRequest

OPTIONAL_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, required=False, description="The ETag of GET. Absent: whatever it is."
)
_NEVER = 0  # versions begin at 1


def expected_version(request: TenantRequest, present: int) -> int | None:
    """The version that the caller saw: None without If-Match and for `*`, one that no job has if it is another."""
    wanted = request.headers.get("If-Match")
    if wanted is None or wanted.strip() == "*":
        return None
    return present if etag_of(present) in {part.strip() for part in wanted.split(",")} else _NEVER


class BulkBody(Message):
    """``tag`` belongs to the actions tag and untag, and only to them."""

    jobs: Annotated[tuple[UUID, ...], Field(min_length=1, max_length=JOBS_MAX, description="Ids.")]
    action: BulkAction
    tag: str = ""


class BulkResultOutput(serializers.Serializer[Any]):
    """Of one job. ``number``, ``name`` and ``state`` are null for one that is not the tenant's."""

    job = serializers.UUIDField(source="job_id")
    number = serializers.IntegerField(allow_null=True)
    name = serializers.CharField(allow_null=True)
    state = serializers.CharField(allow_null=True, help_text="As it is now.")
    done = serializers.BooleanField()
    code = serializers.CharField(allow_blank=True, help_text="Empty if done, else why not: job_live, not_found, ...")
    detail = serializers.CharField(allow_blank=True)


class BulkOutput(serializers.Serializer[Any]):
    """In the order of the ids."""

    results = BulkResultOutput(many=True)
