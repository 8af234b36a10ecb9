"""What was asked and what became of it."""

import uuid

from django.db import models

from gpu_runtime.protocol.ordering import PRIORITY_DEFAULT
from jobs.states import JobState
from tenants.scope import TenantOwned

JOB_STATES = [(state.value, state.value) for state in JobState]
EVENT_TYPES = [(name, name) for name in ("state", "log", "artifact", "policy_version")]


class Job(TenantOwned):  # type: ignore[django-manager-missing]
    """One request of a tenant. The row is the truth; messages are only nudges."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.PositiveIntegerField()  # counts the tenant's jobs from 1; what people call it by
    kind = models.CharField(max_length=20)
    name = models.CharField(max_length=200)
    spec = models.JSONField()  # gpu_runtime.protocol.job_specs.JobSpec
    project = models.ForeignKey("tenants.Project", on_delete=models.PROTECT, related_name="jobs")
    api_key = models.ForeignKey("tenants.ApiKey", on_delete=models.SET_NULL, null=True, related_name="+")
    priority = models.PositiveSmallIntegerField(default=PRIORITY_DEFAULT)  # among the tenant's own, 0 to 9
    env_seats = models.PositiveIntegerField(default=0)  # simulated environments it asks for at once
    base_model = models.CharField(max_length=100)
    head = models.CharField(max_length=20)
    # What it starts from: demonstrations (sft), or a policy (every other kind).
    dataset_version = models.ForeignKey(
        "datasets.DatasetVersion", on_delete=models.PROTECT, null=True, related_name="jobs"
    )
    policy = models.ForeignKey("jobs.Artifact", on_delete=models.PROTECT, null=True, related_name="jobs_from")
    state = models.CharField(max_length=20, choices=JOB_STATES, default=JobState.QUEUED.value)
    reason = models.CharField(max_length=100, blank=True)  # machine-readable
    message = models.CharField(max_length=1000, blank=True)  # for people
    attempt = models.PositiveIntegerField(default=0)  # number of the newest attempt
    attempts_forgiven = models.PositiveIntegerField(default=0)  # those before an operator had it run again
    lease_until = models.DateTimeField(null=True)  # of the worker that dispatches it
    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField(default=0)
    last_seq = models.PositiveBigIntegerField(default=0)  # newest row of this job's stream
    cloned_from = models.ForeignKey("jobs.Job", on_delete=models.SET_NULL, null=True, related_name="clones")
    note = models.TextField(blank=True)  # Markdown, by its tenant's people
    archived_at = models.DateTimeField(null=True)  # not listed unless asked for
    described = models.PositiveIntegerField(default=1)  # version of name, note, tags and archiving, for If-Match
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "number"], name="one_job_per_number")]
        indexes = [
            models.Index(fields=["tenant", "-created_at"], name="job_by_tenant"),
            models.Index(fields=["-created_at", "-id"], name="job_by_age"),  # of all tenants: the operators' list,
            models.Index(fields=["state", "-created_at", "-id"], name="job_by_state_and_age"),  # and that of a state
            models.Index(fields=["tenant", "state", "-priority", "created_at"], name="job_in_line"),
            models.Index(fields=["tenant", "name", "number"], name="job_by_name"),
            models.Index(fields=["tenant", "-finished_at"], name="job_by_end"),
            models.Index(fields=["state", "lease_until"], name="job_by_state"),
            models.Index(fields=["tenant", "kind", "base_model", "head", "-finished_at"], name="job_by_likeness"),
        ]


class JobTag(TenantOwned):
    """A word by which a tenant's people find jobs again."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tags")
    name = models.CharField(max_length=50)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="one_tag_per_name")]
        indexes = [models.Index(fields=["tenant", "name"], name="jobs_by_tag")]

    def __str__(self) -> str:
        return self.name


class JobAttempt(TenantOwned):
    """One hand-over to the runtime. Effects of an older attempt are refused (fencing)."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    journal_id = models.CharField(max_length=100, blank=True)  # the runtime that accepted it
    state = models.CharField(max_length=20, default="dispatching")
    reason = models.CharField(max_length=100, blank=True)
    started_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    checkpoints_removed_at = models.DateTimeField(null=True)  # the runtime has said that they are gone

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="one_attempt_per_number")]
        indexes = [
            models.Index(
                fields=["finished_at"],
                condition=models.Q(finished_at__isnull=False, checkpoints_removed_at=None),
                name="checkpoints_to_remove",
            )
        ]


class JobEvent(TenantOwned):
    """Time line: state changes and log lines, in the job's own sequence (shared with metric points)."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveBigIntegerField()
    attempt = models.PositiveIntegerField()
    type = models.CharField(max_length=30, choices=EVENT_TYPES)
    data = models.JSONField()
    occurred_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "seq"], name="one_event_per_seq")]


class MetricPoint(TenantOwned):
    """One value of one series. ``value`` is null where the number is not finite; ``special`` says which.

    No index on the tenant alone: nobody asks for that, and SQLite would take it for every question in a scope.
    """

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metrics", db_index=False)  # see points_after
    seq = models.PositiveBigIntegerField()  # equal for all series of one step
    attempt = models.PositiveIntegerField()
    series = models.CharField(max_length=100)
    step = models.PositiveIntegerField()
    value = models.FloatField(null=True)
    special = models.CharField(max_length=5, blank=True)  # "nan" | "inf" | "-inf"
    occurred_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "series", "step"], name="one_point_per_step")]
        indexes = [
            models.Index(fields=["job", "seq"], name="points_after"),
            models.Index(fields=["job", "series", "step"], name="points_by_series"),
        ]
