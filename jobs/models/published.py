"""What jobs published: policies, reports, films, datasets."""

import uuid

from django.db import models

from tenants.scope import TenantOwned


class PolicyVersion(TenantOwned):
    """A durable set of weights of one job's slot."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="policy_versions")
    attempt = models.PositiveIntegerField()
    version = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    checkpoint = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "version"], name="one_policy_version")]


class ArtifactKind(models.TextChoices):
    """What a published file is."""

    ADAPTER = "adapter"  # a trained policy: what rl, evaluation and rollout jobs start from
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"  # the report, as JSON
    VIDEO = "video"  # one played episode, as mp4
    DATASET = "dataset"  # recorded episodes; becomes a dataset version of the tenant


class Artifact(TenantOwned):  # type: ignore[django-manager-missing]
    """A file a tenant can download; the runtime keeps the bytes, `runtime_key` names them there."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="artifacts")
    attempt = models.PositiveIntegerField()
    runtime_key = models.CharField(max_length=200, unique=True)
    kind = models.CharField(max_length=20, choices=ArtifactKind.choices)
    media_type = models.CharField(max_length=100, default="application/zip")
    name = models.CharField(max_length=200)
    policy_version = models.PositiveIntegerField()
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    manifest = models.JSONField()
    created_at = models.DateTimeField()
    keep_until = models.DateTimeField(null=True)  # retention; null: until its tenant deletes it
    deleted_at = models.DateTimeField(null=True)  # the row stays: jobs may have begun from it
    removed_at = models.DateTimeField(null=True)  # the runtime has said that the bytes are gone

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "-created_at"], name="artifact_by_tenant"),
            models.Index(fields=["-created_at", "-id"], name="artifact_by_age"),  # of all tenants
            models.Index(
                fields=["keep_until"],
                condition=models.Q(deleted_at=None, keep_until__isnull=False),
                name="artifact_retention",
            ),
            models.Index(
                fields=["deleted_at"],
                condition=models.Q(deleted_at__isnull=False, removed_at=None),
                name="artifact_to_remove",
            ),
        ]


class ImportState(models.TextChoices):
    """How far a recorded dataset is on its way into the tenant's datasets."""

    WAITING = "waiting"  # asked for, or to be tried again
    IMPORTING = "importing"  # a worker copies it; its claim may expire
    IMPORTED = "imported"  # it is a dataset version now, whatever becomes of that
    FAILED = "failed"  # given up; the reason says why


class DatasetImport(TenantOwned):
    """A published dataset that becomes a dataset version of its tenant, once."""

    artifact = models.OneToOneField(Artifact, on_delete=models.CASCADE, related_name="dataset_import")
    state = models.CharField(max_length=20, choices=ImportState.choices, default=ImportState.WAITING)
    reason = models.CharField(max_length=500, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)  # claims so far; fences workers that come back late
    claimed_until = models.DateTimeField(null=True)  # lease of the copying worker; before it, of the message
    version_id = models.UUIDField(null=True)  # of the dataset version, which its tenant may delete
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["state", "claimed_until"], name="imports_waiting")]
