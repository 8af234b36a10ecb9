"""REST: how a version's values are spread, and its episodes as videos."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from tenants.datasets import preview, selectors
from tenants.datasets.file_part import file_answer
from tenants.listing import refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest

IMMUTABLE = {"Cache-Control": "private, max-age=86400, immutable"}  # a sealed version never changes


class SpreadOutput(serializers.Serializer[Any]):
    """One dimension: how many values lie in each of the equal bins from ``low`` to ``high``."""

    name = serializers.CharField()
    low = serializers.FloatField()
    high = serializers.FloatField()
    counts = serializers.ListField(child=serializers.IntegerField())
    degenerate = serializers.BooleanField(help_text="Too still to be scaled: models get 0, its mean is sent back.")
    outside = serializers.FloatField(help_text="Share outside q01 to q99, which is scaled to -1 to 1.")
    farthest = serializers.FloatField(
        allow_null=True, help_text="Greatest distance from 0 after scaling; null: degenerate."
    )


class LengthsOutput(serializers.Serializer[Any]):
    """Episodes by their number of frames: bins of one width, each from its start on."""

    starts = serializers.ListField(child=serializers.IntegerField())
    width = serializers.IntegerField()
    counts = serializers.ListField(child=serializers.IntegerField())


class TaskCountOutput(serializers.Serializer[Any]):
    """Episodes of one instruction."""

    task = serializers.CharField()
    episodes = serializers.IntegerField()


class DistributionOutput(serializers.Serializer[Any]):
    """How the values of a ready version are spread."""

    state = SpreadOutput(many=True, allow_null=True)
    action = SpreadOutput(many=True)
    lengths = LengthsOutput()
    tasks = TaskCountOutput(many=True)


class DistributionApi(APIView):
    """Histograms of a version."""

    permission = {"GET": Permission.DATASETS_READ}

    @extend_schema(operation_id="dataset_versions_distribution", responses=DistributionOutput)
    def get(self, request: TenantRequest, version_id: UUID) -> Response:
        """Of every dimension of state and action, of the episodes' lengths and instructions."""
        refuse_query(request)
        spread = preview.distribution(selectors.version_get(request.tenant, version_id))
        return Response(DistributionOutput(spread).data, headers=IMMUTABLE)


class VideoApi(APIView):
    """One episode as a camera saw it."""

    permission = {"GET": Permission.DATASETS_READ}

    @extend_schema(
        operation_id="dataset_versions_video",
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="A part, as players ask.")],
        responses={
            (200, "video/mp4"): OpenApiTypes.BINARY,
            (206, "video/mp4"): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: TenantRequest, version_id: UUID, episode: int, camera: str) -> HttpResponseBase:
        """H.264, upright, frame i at i / fps seconds. Made when it is asked for first, which may take some seconds."""
        refuse_query(request)
        version = selectors.version_get(request.tenant, version_id)
        file = preview.video(version, episode, camera)
        tag = f'"{version.pk.hex}-{episode}"'  # of one address, and what it names never changes
        response = file_answer(file, request.headers, tag=tag, content_type="video/mp4")
        for name, value in IMMUTABLE.items():
            response[name] = value
        return response
