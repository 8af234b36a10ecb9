"""The journal's entries take effect exactly once, and only those of the present attempt touch the job."""

import math
from typing import Any

import pytest

from gpu_runtime.protocol.messages import (
    ArtifactPublished,
    Event,
    EventBatch,
    LogWritten,
    MetricsRecorded,
    PolicyVersionPublished,
    StateChanged,
    UsageLine,
    UsageMetered,
    WorkloadState,
)
from jobs.models import Artifact, DeviceSpan, JobEvent, MetricPoint, PolicyVersion, RuntimeCursor
from jobs.relay import Relay
from jobs.services import ingest
from jobs.services.dispatch import job_dispatch
from jobs.services.ingest import CursorAhead, batch_apply
from jobs.services.sweep import reconcile
from tenants.billing.models import PriceVersion, UsageEvent
from tenants.billing.usage.selectors import job_cost
from tenants.errors import ApplicationError
from tenants.scope import platform_scope
from tests.support.jobs import events_of, points_of, relay_all, reread, start_job, states_of
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db

TABLES = (JobEvent, MetricPoint, PolicyVersion, Artifact, DeviceSpan, UsageEvent)


def row_counts() -> dict[str, int]:
    with platform_scope():
        return {table.__name__: table.objects.count() for table in TABLES}


def batch(runtime: InMemoryRuntime, first: int, last: int) -> EventBatch:
    """Entries first..last of the journal, both included."""
    events: tuple[Event, ...] = tuple(runtime.journal[first - 1 : last])
    return EventBatch(journal_id=runtime.journal_id, events=events, last_seq=len(runtime.journal))


def artifact(name: str = "adapter-1", **manifest: Any) -> ArtifactPublished:
    return ArtifactPublished(
        artifact_id=name,
        kind="adapter",
        name="adapter",
        policy_version=2,
        bytes=10,
        sha256="0" * 64,
        files=(),
        manifest=manifest,
    )


def run_two_steps(runtime: InMemoryRuntime, key: tuple[str, int]) -> None:
    runtime.tell_state(*key, WorkloadState.RUNNING, total_steps=2)
    runtime.train_step([key], 1)
    runtime.train_step([key], 2)
    runtime.tell(*key, PolicyVersionPublished(version=2, step=2, checkpoint="step-2", sha256="a" * 64))
    runtime.tell(*key, artifact())
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=2, total_steps=2)


def test_a_job_follows_its_journal_to_the_end(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    run_two_steps(runtime, key)
    relay_all(runtime)
    job = reread(job)
    assert states_of(job) == ["queued", "starting", "running", "succeeded"]
    assert (job.step, job.total_steps, job.attempt) == (2, 2, 1)
    assert job.started_at is not None
    assert job.finished_at is not None
    assert [point.value for point in points_of(job, series="loss")] == [1.0, 0.5]
    assert row_counts() == {
        "JobEvent": 6,
        "MetricPoint": 2,
        "PolicyVersion": 1,
        "Artifact": 1,
        "DeviceSpan": 2,
        "UsageEvent": 4,
    }


def test_the_same_batch_twice_changes_nothing_the_second_time(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    run_two_steps(runtime, key)
    whole = batch(runtime, 1, len(runtime.journal))
    batch_apply(whole, after=0)
    before, stream = row_counts(), reread(job).last_seq
    again = batch_apply(whole, after=0)
    assert (again.applied, again.skipped) == (0, len(runtime.journal))
    assert (row_counts(), reread(job).last_seq) == (before, stream)


def test_overlapping_batches_give_the_rows_of_one_pass(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    run_two_steps(runtime, key)
    last = len(runtime.journal)
    batch_apply(batch(runtime, 1, 5), after=0)
    batch_apply(batch(runtime, 3, 8), after=2)
    batch_apply(batch(runtime, 1, last), after=0)
    assert row_counts()["UsageEvent"] == 4
    assert row_counts()["MetricPoint"] == 2
    assert states_of(job) == ["queued", "starting", "running", "succeeded"]


def test_a_crash_before_the_commit_leaves_neither_rows_nor_cursor(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, key = start_job(alice, runtime)
    run_two_steps(runtime, key)
    before = row_counts()

    def die(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RuntimeCursor, "save", die)
        with pytest.raises(KeyboardInterrupt):
            relay_all(runtime)
    assert row_counts() == before
    assert reread(job).state == "starting"
    relay_all(runtime)
    assert row_counts()["UsageEvent"] == 4
    assert reread(job).state == "succeeded"


def test_a_forgotten_cursor_would_be_seen_here(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the cursor is not moved with the effects. Log lines, which no constraint guards, then double."""
    job, key = start_job(alice, runtime)
    runtime.tell(*key, LogWritten(level="info", message="hello"))
    RuntimeCursor.objects.create(journal_id=runtime.journal_id)
    monkeypatch.setattr(RuntimeCursor, "save", lambda *args, **kwargs: None)
    whole = batch(runtime, 1, len(runtime.journal))
    batch_apply(whole, after=0)
    batch_apply(whole, after=0)
    assert len(events_of(job, type="log")) == 2


def test_a_batch_that_starts_beyond_the_cursor_is_refused(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_job(alice, runtime)
    run_two_steps(runtime, key)
    with pytest.raises(CursorAhead):
        batch_apply(batch(runtime, 3, 4), after=2)


def test_values_that_are_not_finite_are_null_and_flagged(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    values = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.5}
    runtime.tell(*key, MetricsRecorded(step=1, values=values))
    relay_all(runtime)
    points = {point.series: (point.value, point.special) for point in points_of(job)}
    assert points == {"a": (None, "nan"), "b": (None, "inf"), "c": (None, "-inf"), "d": (1.5, "")}


def test_text_and_manifests_no_database_could_hold_are_mended(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    runtime.tell(*key, LogWritten(level="error", message="a\x00b"))
    runtime.tell(*key, artifact(loss=math.nan, notes=["x\x00"]))
    relay_all(runtime)
    assert events_of(job, type="log")[0].data["message"] == "a\ufffdb"
    with platform_scope():
        assert Artifact.objects.get().manifest == {"loss": None, "notes": ["x\ufffd"]}


def test_a_stale_attempt_cannot_touch_its_job_but_its_work_is_billed(alice: Person, runtime: InMemoryRuntime) -> None:
    job, first = start_job(alice, runtime)
    tenant_id = str(alice.tenant.pk)
    runtime.forget()  # the journal is lost, the job begins again there as attempt 2
    reconcile(runtime=runtime)
    job_dispatch(job.pk, runtime=runtime)
    assert reread(job).attempt == 2
    cost_before = job_cost(alice.tenant, job.pk).amount
    for body in (
        artifact("late"),
        PolicyVersionPublished(version=9, step=9, checkpoint="step-9", sha256="b" * 64),
        LogWritten(level="info", message="late"),
        StateChanged(state=WorkloadState.SUCCEEDED),
        MetricsRecorded(step=9, values={"loss": 0.1}),
        UsageMetered(
            event_id="late", span_id="s", step=9, group_size=1, lines=(UsageLine(meter="train.samples", quantity=16),)
        ),
    ):
        runtime.tell(*first, body, tenant_id=tenant_id)
    applied = batch_apply(batch(runtime, 1, len(runtime.journal)), after=0)
    assert applied.refused == {"stale_attempt": 4}
    assert reread(job).state == "starting"
    assert reread(job).step == 0
    assert events_of(job, type="log") == []
    with platform_scope():
        assert not Artifact.objects.exists()
        assert not PolicyVersion.objects.exists()
    assert [point.attempt for point in points_of(job)] == [1]
    assert job_cost(alice.tenant, job.pk).amount > cost_before


def test_without_the_fence_a_stale_attempt_would_end_the_job(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: every attempt counts as the present one."""
    job, first = start_job(alice, runtime)
    runtime.forget()
    reconcile(runtime=runtime)
    job_dispatch(job.pk, runtime=runtime)
    runtime.tell(*first, StateChanged(state=WorkloadState.SUCCEEDED), tenant_id=str(alice.tenant.pk))
    monkeypatch.setattr(ingest._Ingest, "_is_present", lambda *args: True)
    relay_all(runtime)
    assert reread(job).state == "succeeded"


def test_an_entry_that_names_another_tenant_has_no_effect(
    alice: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_job(alice, runtime)
    runtime.tell(*key, MetricsRecorded(step=1, values={"loss": 1.0}), tenant_id=str(charlie.tenant.pk))
    runtime.tell("no-such-job", 1, LogWritten(level="info", message="x"), tenant_id=str(charlie.tenant.pk))
    applied = batch_apply(batch(runtime, 1, len(runtime.journal)), after=0)
    assert applied.refused == {"foreign_tenant": 1, "unknown_job": 1}
    assert points_of(job) == []


def test_usage_told_again_with_another_quantity_is_refused_and_the_first_stands(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_job(alice, runtime)
    for quantity in (16, 17):
        lines = (UsageLine(meter="train.samples", quantity=quantity),)
        runtime.tell(*key, UsageMetered(event_id="e", span_id="s", step=1, lines=lines, group_size=1))
    applied = batch_apply(batch(runtime, 1, len(runtime.journal)), after=0)
    assert applied.refused == {"usage_conflict": 1}
    assert [line.quantity for line in job_cost(alice.tenant, job.pk).lines] == [16]


def test_usage_without_a_price_waits_in_the_journal_and_is_not_lost(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = start_job(alice, runtime)
    runtime.train_step([key], 1)
    with monkeypatch.context() as patch:
        patch.setattr(PriceVersion.objects, "filter", lambda **lookup: PriceVersion.objects.none())
        with pytest.raises(ApplicationError, match="no_price"):
            relay_all(runtime)
    assert row_counts()["UsageEvent"] == 0
    relay_all(runtime)
    assert row_counts()["UsageEvent"] == 2


def test_steps_redone_after_a_restart_are_one_point_each(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    for step in (1, 2, 2, 3):
        runtime.tell(*key, MetricsRecorded(step=step, values={"loss": 1.0}))
    relay_all(runtime)
    assert [point.step for point in points_of(job)] == [1, 2, 3]


def test_the_relay_follows_a_new_journal_from_its_beginning(alice: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_job(alice, runtime)
    relay = Relay(runtime)
    relay.poll(wait_s=0)
    runtime.forget()
    reconcile(runtime=runtime)
    job_dispatch(job.pk, runtime=runtime)
    runtime.tell_state(str(job.pk), 2, WorkloadState.RUNNING)
    assert relay.poll(wait_s=0) is None
    relay.poll(wait_s=0)
    assert reread(job).state == "running"
    assert RuntimeCursor.objects.count() == 2
