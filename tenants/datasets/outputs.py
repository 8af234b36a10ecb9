"""Datasets and versions as the API shows them."""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gpu_runtime.protocol.schema import DatasetSummary, ValidationReport
from tenants.datasets.models import Dataset, DatasetVersion


@extend_schema_field(ValidationReport)  # type: ignore[arg-type]
class ReportField(serializers.JSONField):
    pass


@extend_schema_field(DatasetSummary)  # type: ignore[arg-type]
class SummaryField(serializers.JSONField):
    pass


class VersionOutput(serializers.ModelSerializer[DatasetVersion]):
    """A version in short."""

    class Meta:
        model = DatasetVersion
        fields = [
            "id",
            "number",
            "state",
            "reason",
            "size_bytes",
            "derived_from",
            "recorded_from",
            "created_at",
            "sealed_at",
        ]
        extra_kwargs = {
            "size_bytes": {"help_text": "As stored: of the archive until it is validated, then of its files."},
            "derived_from": {"help_text": "The version it was made from."},
            "recorded_from": {"help_text": "The job whose episodes it holds; null: it was uploaded."},
        }


class VersionDetailOutput(VersionOutput):
    """A version with what validation found; summary and hashes are final once it is ready."""

    dataset = serializers.UUIDField(source="dataset_id")
    name = serializers.CharField(source="dataset.name")
    report = ReportField(allow_null=True)
    summary = SummaryField(allow_null=True)

    class Meta(VersionOutput.Meta):
        fields = [
            *VersionOutput.Meta.fields,
            "dataset",
            "name",
            "declared",
            "report",
            "summary",
            "schema_signature",
            "statistics_hash",
            "fingerprint",
        ]


class DatasetOutput(serializers.ModelSerializer[Dataset]):
    """A dataset with its versions, newest first."""

    versions = VersionOutput(many=True)

    class Meta:
        model = Dataset
        fields = ["id", "name", "keep_days", "created_at", "versions"]
        extra_kwargs = {
            "keep_days": {"help_text": "Ready versions that no job uses are deleted so many days later; null: never."}
        }
