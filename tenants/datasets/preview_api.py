"""REST: what is inside a dataset version, and where it comes from."""

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from tenants.bodies import parse_query
from tenants.datasets import preview, selectors
from tenants.datasets.lineage import lineage_of
from tenants.datasets.models import DatasetVersion
from tenants.datasets.outputs import SummaryField
from tenants.datasets.spread_api import IMMUTABLE
from tenants.listing import refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest

_PAGES_MAX = 2**31


class PreviewQuery(Message):
    """Which hundred episodes, of every instruction or of one."""

    page: Annotated[int, Field(ge=1, le=_PAGES_MAX)] = 1
    task: Annotated[str | None, Field(max_length=10_000)] = None


class EpisodeQuery(Message):
    """How fine the curves are."""

    max_points: Annotated[int, Field(ge=50, le=2000)] = 500


class FrameQuery(Message):
    """Which frame of the episode, from 0."""

    index: Annotated[int, Field(ge=0, le=2**31)] = 0


class EpisodeOutput(serializers.Serializer[Any]):
    """One episode in short."""

    index = serializers.IntegerField()
    length = serializers.IntegerField(help_text="Frames.")
    task = serializers.CharField(help_text="The instruction.")


class EpisodeRowOutput(EpisodeOutput):
    """One episode of the list, with what the recording says beside its frames."""

    success_once = serializers.BooleanField(allow_null=True, help_text="Null: the recording does not say.")
    seed = serializers.IntegerField(allow_null=True, help_text="Null: the recording does not say.")


class PreviewOutput(serializers.Serializer[Any]):
    """A ready version: what validation learned (schema, statistics per dimension) and its episodes by the page."""

    id = serializers.UUIDField()
    schema_signature = serializers.CharField()
    statistics_hash = serializers.CharField()
    summary = SummaryField()
    total = serializers.IntegerField(help_text="Episodes, of the instruction asked for.")
    page = serializers.IntegerField()
    pages = serializers.IntegerField()
    episodes = EpisodeRowOutput(many=True)


class CurveOutput(serializers.Serializer[Any]):
    """One dimension: least and greatest value of each bucket; null where it has no finite number."""

    name = serializers.CharField()
    min = serializers.ListField(child=serializers.FloatField(allow_null=True))
    max = serializers.ListField(child=serializers.FloatField(allow_null=True))


class EpisodeSeriesOutput(EpisodeOutput):
    """Curves of one episode."""

    fps = serializers.FloatField(help_text="Of the recording, and of its video.")
    frames = serializers.ListField(child=serializers.IntegerField(), help_text="First frame of each bucket.")
    state = CurveOutput(many=True, allow_null=True)
    action = CurveOutput(many=True)


class LineageVersionOutput(serializers.ModelSerializer[DatasetVersion]):
    """A version of the family."""

    name = serializers.CharField(source="dataset.name")

    class Meta:
        model = DatasetVersion
        fields = ["id", "dataset", "name", "number", "state", "derived_from", "recorded_from", "created_at"]


class LineageOutput(serializers.Serializer[Any]):
    """Ancestors, parent first, and descendants, nearest first."""

    version = LineageVersionOutput()
    ancestors = LineageVersionOutput(many=True)
    descendants = LineageVersionOutput(many=True)
    truncated = serializers.BooleanField(help_text="There are more than are shown.")


class PreviewApi(APIView):
    """A version at a glance."""

    permission = {"GET": Permission.DATASETS_READ}

    @extend_schema(
        operation_id="dataset_versions_preview",
        parameters=[
            OpenApiParameter("page", int, description="Hundred episodes each, from 1."),
            OpenApiParameter("task", str, description="Only episodes of this instruction."),
        ],
        responses=PreviewOutput,
    )
    def get(self, request: TenantRequest, version_id: UUID) -> Response:
        """Schema, statistics per dimension and episodes of a ready version."""
        query = parse_query(PreviewQuery, request.query_params)
        version = selectors.version_get(request.tenant, version_id)
        preview.require_ready(version)
        found = preview.episodes(version, query.page, query.task)
        answer = {
            "id": version.pk,
            "schema_signature": version.schema_signature,
            "statistics_hash": version.statistics_hash,
            "summary": version.summary,
            "page": query.page,
            "pages": -(-found["total"] // preview.EPISODES_PER_PAGE),
            **found,
        }
        return Response(PreviewOutput(answer).data)


class EpisodeApi(APIView):
    """One episode."""

    permission = {"GET": Permission.DATASETS_READ}

    @extend_schema(
        operation_id="dataset_versions_episode",
        parameters=[OpenApiParameter("max_points", int, description="Of each curve, 50 to 2000.")],
        responses=EpisodeSeriesOutput,
    )
    def get(self, request: TenantRequest, version_id: UUID, episode: int) -> Response:
        """Curves of state and action, each bucket with its least and greatest value."""
        query = parse_query(EpisodeQuery, request.query_params)
        version = selectors.version_get(request.tenant, version_id)
        answer = preview.episode(version, episode, query.max_points)
        return Response(EpisodeSeriesOutput(answer).data, headers=IMMUTABLE)


class FrameApi(APIView):
    """One frame."""

    permission = {"GET": Permission.DATASETS_READ}

    @extend_schema(
        operation_id="dataset_versions_frame",
        parameters=[OpenApiParameter("index", int, description="Frame of the episode, from 0.")],
        responses={(200, "image/jpeg"): OpenApiTypes.BINARY},
    )
    def get(self, request: TenantRequest, version_id: UUID, episode: int, camera: str) -> HttpResponse:
        """A frame as policies see it, turned upright, as JPEG."""
        query = parse_query(FrameQuery, request.query_params)
        version = selectors.version_get(request.tenant, version_id)
        content = preview.frame(version, episode, camera, query.index)
        return HttpResponse(content, content_type="image/jpeg", headers=IMMUTABLE)


class LineageApi(APIView):
    """The family of a version."""

    permission = {"GET": Permission.DATASETS_READ}

    @extend_schema(operation_id="dataset_versions_lineage", responses=LineageOutput)
    def get(self, request: TenantRequest, version_id: UUID) -> Response:
        """What it was made from, back to the first, and what was made from it."""
        refuse_query(request)
        version = selectors.version_get(request.tenant, version_id)
        family = lineage_of(request.tenant, version)
        answer = {
            "version": version,
            "ancestors": family.ancestors,
            "descendants": family.descendants,
            "truncated": family.truncated,
        }
        return Response(LineageOutput(answer).data)
