"""What the API tells of published files and policy versions."""

from rest_framework import serializers

from jobs.models import Artifact, PolicyVersion


class ArtifactOutput(serializers.ModelSerializer[Artifact]):
    """A published file. ``manifest`` is the adapter's, or the report, film or recording in short."""

    job = serializers.UUIDField(source="job_id")
    download = serializers.SerializerMethodField()

    class Meta:
        model = Artifact
        fields = [
            *("id", "job", "kind", "media_type", "name", "attempt", "policy_version", "size_bytes", "sha256"),
            *("manifest", "created_at", "keep_until", "deleted_at", "download"),
        ]

    def get_download(self, artifact: Artifact) -> str:
        return f"/api/v1/artifacts/{artifact.pk}/download"


class PolicyVersionOutput(serializers.ModelSerializer[PolicyVersion]):
    class Meta:
        model = PolicyVersion
        fields = ["id", "attempt", "version", "step", "checkpoint", "sha256", "created_at"]
