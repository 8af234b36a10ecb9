"""Demonstrations: a dataset is a name, its versions are immutable once sealed."""

import uuid

from django.db import models

from tenants.scope import TenantOwned


class Dataset(TenantOwned):  # type: ignore[django-manager-missing]
    """A name for recordings of one kind, and how long they are kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    # Versions that no job uses go so many days after they were sealed; null: never.
    keep_days = models.PositiveIntegerField(null=True)
    newest_number = models.PositiveIntegerField(default=0)  # a version's number is never given twice
    version = models.PositiveIntegerField(default=1)  # for ETag: changes with name, retention and list of versions

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="one_dataset_per_name")]

    def __str__(self) -> str:
        return self.name


class VersionState(models.TextChoices):
    """Life of a dataset version."""

    RECEIVED = "received"  # bytes are here, validation is waiting
    VALIDATING = "validating"  # a child process reads it
    READY = "ready"  # sealed: schema, statistics and fingerprint are final
    INVALID = "invalid"  # the report says why


class DatasetVersion(TenantOwned):  # type: ignore[django-manager-missing]
    """Immutable once ready: the files, their fingerprint, the schema and the statistics.

    The database refuses to change a ready row (`sealed.py`); ``derived_from`` may only be lost with what it names.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=20, choices=VersionState.choices, default=VersionState.RECEIVED)
    reason = models.CharField(max_length=500, blank=True)
    storage_key = models.CharField(max_length=300)  # relative to the dataset root, made by us
    declared = models.JSONField(default=dict)  # representation, gripper, rotations the importer declared
    report = models.JSONField(null=True)  # ValidationReport
    summary = models.JSONField(null=True)  # DatasetSummary; set once, when ready
    schema_signature = models.CharField(max_length=64, blank=True)
    statistics_hash = models.CharField(max_length=64, blank=True)
    fingerprint = models.CharField(max_length=64, blank=True)
    size_bytes = models.BigIntegerField(default=0)  # counted as stored, unless invalid: then nothing is kept
    derived_from = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="derived")
    recorded_from = models.UUIDField(null=True, db_index=True)  # the job whose episodes it holds; null: uploaded
    claimed_until = models.DateTimeField(null=True)  # lease of the validating worker; before it, of the message
    attempts = models.PositiveSmallIntegerField(default=0)  # claims so far; fences workers that come back late
    created_at = models.DateTimeField(auto_now_add=True)
    sealed_at = models.DateTimeField(null=True)  # when it became ready

    class Meta:
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="one_version_per_number")]

    def __str__(self) -> str:
        return f"{self.dataset}, version {self.number}"


class UploadState(models.TextChoices):
    """Life of a chunked upload."""

    RECEIVING = "receiving"  # chunks come, in order
    COMPLETED = "completed"  # whole and verified; it is a dataset version now
    ABORTED = "aborted"  # by its tenant, or because it stood still too long; bytes and reservation are given back


class Upload(TenantOwned):  # type: ignore[django-manager-missing]
    """An archive that arrives in chunks and can be resumed. Its size is reserved before the first byte."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)  # of the dataset
    declared = models.JSONField(default=dict)
    derived_from = models.ForeignKey(DatasetVersion, on_delete=models.SET_NULL, null=True, related_name="+")
    size_bytes = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    received_bytes = models.PositiveBigIntegerField(default=0)  # whole chunks, verified and on the disk
    state = models.CharField(max_length=20, choices=UploadState.choices, default=UploadState.RECEIVING)
    reason = models.CharField(max_length=200, blank=True)
    version = models.ForeignKey(DatasetVersion, on_delete=models.SET_NULL, null=True, related_name="+")
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField()  # newest chunk; it expires a day after that

    def __str__(self) -> str:
        return self.name
