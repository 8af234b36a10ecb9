"""What the jobs API answers of jobs, their events and curves, as serializers: the forms and their OpenAPI."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from pydantic import RootModel
from rest_framework import serializers

from gpu_runtime.protocol.job_specs import JobSpec
from jobs.models import Artifact, DatasetImport, ImportState, Job, JobAttempt
from jobs.selectors.imports import import_of_job
from jobs.selectors.jobs import environments_of
from jobs.selectors.line import QueuePlace, queue_places
from jobs.selectors.shares import compute_share
from tenants.billing.usage.selectors import job_cost
from tenants.datasets.selectors import versions_recorded_from
from tenants.scope import tenant_scope


class DatasetRefOutput(serializers.Serializer[Any]):
    """A dataset version a job reads or made."""

    version_id = serializers.UUIDField(source="pk")
    name = serializers.CharField(source="dataset.name")
    number = serializers.IntegerField()


class PolicyRefOutput(serializers.ModelSerializer[Artifact]):
    """The adapter a job starts from, and the job that trained it."""

    artifact_id = serializers.UUIDField(source="pk")
    job_id = serializers.UUIDField()
    job_name = serializers.CharField(source="job.name")

    class Meta:
        model = Artifact
        fields = ["artifact_id", "name", "policy_version", "job_id", "job_name"]


class JobListOutput(serializers.ListSerializer[Job]):
    """Several jobs of one tenant: their places in line are found in one query."""

    def to_representation(self, data: Any) -> Any:
        jobs = list(data)
        if jobs and isinstance(self.child, JobOutput):
            self.child.places = queue_places(jobs[0].tenant_id, jobs)
        return super().to_representation(jobs)


class QueueOutput(serializers.Serializer[Any]):
    """Why a job waits and how many of the tenant's jobs are before it; the first one has position 1."""

    reason = serializers.CharField(allow_blank=True, help_text="For example quota_running_jobs; empty: starts soon.")
    position = serializers.IntegerField()
    of = serializers.IntegerField()


class BudgetOutput(serializers.Serializer[Any]):
    """Where the job ends, whatever it has still to do. Null: no such limit of its own."""

    max_cost = serializers.CharField(allow_null=True)
    max_compute_s = serializers.IntegerField(allow_null=True)


class JobOutput(serializers.ModelSerializer[Job]):
    """A job in a list. ``dataset`` is of kind sft, ``policy`` and ``environments`` of every other kind."""

    places: dict[UUID, QueuePlace] | None = None  # those of a whole list, if it was asked for
    project = serializers.CharField(source="project.slug", help_text="Its slug.")
    budget = serializers.SerializerMethodField()
    queue = serializers.SerializerMethodField(help_text="Null unless the job is queued.")
    dataset = DatasetRefOutput(source="dataset_version", allow_null=True)
    policy = PolicyRefOutput(allow_null=True)
    environments = serializers.SerializerMethodField(help_text="Ids of the simulated tasks.")
    created_by = serializers.EmailField(source="created_by.email", default=None, allow_null=True)
    number = serializers.IntegerField(help_text="Counts the tenant's jobs from 1; people write J-12.")
    tags = serializers.SerializerMethodField(help_text="In alphabetical order.")
    archived_at = serializers.DateTimeField(allow_null=True, help_text="Since when it is hidden from lists.")
    cloned_from = serializers.UUIDField(
        source="cloned_from_id", allow_null=True, help_text="The job whose settings this one began with."
    )

    class Meta:
        model = Job
        fields = [
            *(
                "id",
                "number",
                "kind",
                "name",
                "tags",
                "note",
                "archived_at",
                "cloned_from",
                "project",
                "priority",
                "state",
                "reason",
                "message",
                "queue",
                "budget",
            ),
            *("base_model", "head", "dataset", "policy"),
            *("environments", "attempt", "step", "total_steps", "last_seq", "created_by", "created_at", "started_at"),
            "finished_at",
        ]
        list_serializer_class = JobListOutput

    def get_tags(self, job: Job) -> list[str]:
        return sorted(tag.name for tag in job.tags.all())

    def get_environments(self, job: Job) -> list[str]:
        return environments_of(job)

    @extend_schema_field(BudgetOutput)
    def get_budget(self, job: Job) -> dict[str, Any]:
        """A job of an earlier release has none."""
        budget = job.spec.get("budget") or {}
        return {"max_cost": budget.get("max_cost"), "max_compute_s": budget.get("max_compute_s")}

    @extend_schema_field(QueueOutput(allow_null=True))
    def get_queue(self, job: Job) -> dict[str, Any] | None:
        places = queue_places(job.tenant_id, [job]) if self.places is None else self.places
        place = places.get(job.pk)
        return None if place is None else dict(QueueOutput(place).data)


class AttemptOutput(serializers.ModelSerializer[JobAttempt]):
    class Meta:
        model = JobAttempt
        fields = ["number", "state", "reason", "started_at", "finished_at"]


class DatasetImportOutput(serializers.ModelSerializer[DatasetImport]):
    """Recorded episodes on their way into the datasets. ``failed``: given up for ``reason``; it can be retried."""

    state = serializers.ChoiceField(choices=ImportState.choices)

    class Meta:
        model = DatasetImport
        fields = ["state", "reason", "attempts", "version_id"]


class FreeWorkOutput(serializers.Serializer[Any]):
    reason = serializers.CharField(help_text="For example redone_after_restart.")
    quantity = serializers.IntegerField()


class CostLineOutput(serializers.Serializer[Any]):
    meter = serializers.CharField()
    quantity = serializers.IntegerField()
    free = FreeWorkOutput(many=True, help_text="Of the quantity: metered and not billed, and why.")
    amount = serializers.SerializerMethodField()

    def get_amount(self, line: Any) -> str:
        return f"{line.amount:f}"


class CostOutput(serializers.Serializer[Any]):
    """Money as a string of exact digits."""

    amount = serializers.SerializerMethodField()
    currency = serializers.CharField()
    lines = CostLineOutput(many=True)

    def get_amount(self, cost: Any) -> str:
        return f"{cost.amount:f}"


class AnyJobSpec(RootModel[JobSpec]):
    """A specification of any kind."""


@extend_schema_field(AnyJobSpec)  # type: ignore[arg-type]  # pydantic models are read by an extension
class SpecField(serializers.JSONField):
    """The specification with every default spelled out."""


class JobDetailOutput(JobOutput):
    """One job with its bill and its attempts."""

    spec = SpecField()
    cost = serializers.SerializerMethodField(help_text="So far.")
    compute_share = serializers.SerializerMethodField(
        help_text="This tenant's part (0 to 1) of the device time, training and inference, of the job's life."
    )
    attempts = serializers.SerializerMethodField()
    recorded = serializers.SerializerMethodField(help_text="Dataset versions made of this job's episodes.")

    dataset_import = serializers.SerializerMethodField(help_text="Null where nothing was recorded.")

    class Meta(JobOutput.Meta):
        fields = [
            *JobOutput.Meta.fields,
            *("spec", "cost", "compute_share", "attempts", "recorded", "dataset_import"),
        ]

    @extend_schema_field(CostOutput)
    def get_cost(self, job: Job) -> Any:
        return CostOutput(job_cost(job.tenant, job.pk)).data

    def get_compute_share(self, job: Job) -> float | None:
        return compute_share(job.tenant, job)

    @extend_schema_field(AttemptOutput(many=True))
    def get_attempts(self, job: Job) -> Any:
        with tenant_scope(job.tenant):
            return AttemptOutput(JobAttempt.objects.filter(job_id=job.pk).order_by("number"), many=True).data

    @extend_schema_field(DatasetRefOutput(many=True))
    def get_recorded(self, job: Job) -> Any:
        return DatasetRefOutput(versions_recorded_from(job.tenant, job.pk), many=True).data

    @extend_schema_field(DatasetImportOutput(allow_null=True))
    def get_dataset_import(self, job: Job) -> Any:
        row = import_of_job(job.tenant, job.pk)
        return None if row is None else DatasetImportOutput(row).data


class EventOutput(serializers.Serializer[Any]):
    seq = serializers.IntegerField()
    attempt = serializers.IntegerField()
    type = serializers.ChoiceField(choices=["state", "log", "artifact", "policy_version"])
    data = serializers.DictField()  # type: ignore[assignment]  # the field is called data on the wire
    occurred_at = serializers.DateTimeField()


class EventsOutput(serializers.Serializer[Any]):
    """Events in order; pass ``seq`` as ``after`` for what follows."""

    events = EventOutput(many=True)
    seq = serializers.IntegerField()
    more = serializers.BooleanField()
    state = serializers.CharField(help_text="The job's present state.")


class SeriesOutput(serializers.Serializer[Any]):
    """One curve of one attempt, column by column: ``shown`` buckets of ``total`` points."""

    name = serializers.CharField()
    attempt = serializers.IntegerField()
    total = serializers.IntegerField()
    shown = serializers.IntegerField()
    width = serializers.IntegerField(help_text="Steps of a bucket; bucket n begins at step n * width.")
    step = serializers.ListField(child=serializers.IntegerField(), help_text="Of each bucket's last point.")
    time = serializers.ListField(child=serializers.FloatField(), help_text="Of that point, seconds since 1970.")
    last = serializers.ListField(child=serializers.FloatField(allow_null=True))
    min = serializers.ListField(child=serializers.FloatField(allow_null=True))
    max = serializers.ListField(child=serializers.FloatField(allow_null=True))
    special = serializers.ListField(child=serializers.CharField(allow_null=True), help_text="nan, inf, -inf or null.")


class MetricsOutput(serializers.Serializer[Any]):
    """Curves; pass ``seq`` as ``after`` for newer points only."""

    seq = serializers.IntegerField()
    state = serializers.CharField(help_text="The job's present state.")
    series = SeriesOutput(many=True)
