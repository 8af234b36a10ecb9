"""A GPU runtime in memory with the gateway's contract: idempotent submits, a journal, cancels. It trains nothing;
tests tell it what its jobs did. `tests/jobs/test_runtime_contract.py` holds it and the real gateway to one contract.
"""

import threading
import uuid
from collections.abc import Iterator
from typing import Any

from gpu_runtime.protocol.lora import TextModules
from gpu_runtime.protocol.messages import (
    TERMINAL_WORKLOAD_STATES,
    BaseModelInfo,
    Event,
    EventBatch,
    FeatureStoreStatus,
    MetricsRecorded,
    RuntimeStatus,
    ServiceStatus,
    SpanMeasured,
    StateChanged,
    StopJob,
    SubmitJob,
    UsageLine,
    UsageMetered,
    WorkloadState,
    WorkloadStatus,
)
from jobs.runtime_client import ArtifactStream, RuntimeRefused, RuntimeUnreachable

START_US = 1_790_000_000_000_000
BASE = BaseModelInfo(
    name="tiny-qwen3-vl",
    revision="seed-0",
    parameters=2_000_000,
    hidden_size=64,
    layers=4,
    dtype="float32",
    device="cpu",
    random_weights=True,
    lora_modules=(
        TextModules(name="q_proj", inputs=64, outputs=128, count=4),
        TextModules(name="v_proj", inputs=64, outputs=32, count=4),
    ),
)


SERVICES = ("training", "inference", "environment")


def _service(name: str, *, queue_depth: int, drained: str | None) -> ServiceStatus:
    latency_ms = 40.0 if name == "inference" else None
    seats = {"seats_used": 3, "seats_total": 32} if name == "environment" else {}
    return ServiceStatus(
        service=name,
        state="idle" if drained is None else "draining",
        reason=drained,
        busy_share=0.25,
        window_s=60,
        queue_depth=queue_depth,
        group_size_mean=1.5,
        latency_p95_ms=latency_ms,
        **seats,
    )


class InMemoryRuntime:
    """RuntimeClient and the tests' handle on it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now_us = START_US
        self.accepting, self.reason = True, None
        self.down = False  # no call gets through
        self.lose_answer_of_submit = False  # the next submit is carried out, its answer is lost
        self.refuse_submit: RuntimeRefused | None = None
        self.artifacts: dict[str, bytes] = {}
        self.ranges_served: list[tuple[int, int | None]] = []
        self.env_seats_per_tenant: int | None = None
        self.env_namespaces: tuple[str, ...] | None = None
        self.cancelled: list[tuple[str, int]] = []
        self.stops: dict[tuple[str, int], StopJob] = {}  # by attempt: the first ask, which stands
        self.checkpoints: dict[tuple[str, int], int] = {}  # by attempt: bytes
        self.features: dict[str, int] = {}  # by dataset version: bytes
        self.drained: dict[str, str] = {}  # service -> reason
        self.forget()

    def forget(self) -> None:
        """Start again with an empty state folder."""
        self.journal_id = f"journal-{uuid.uuid4()}"
        self.journal: list[Event] = []
        self.submitted: dict[tuple[str, int], SubmitJob] = {}
        self.states: dict[tuple[str, int], WorkloadStatus] = {}

    # --- the contract ---

    def status(self) -> RuntimeStatus:
        self._reach()
        live = [state for state in self.states.values() if state.state not in TERMINAL_WORKLOAD_STATES]
        services = tuple(_service(name, queue_depth=len(live), drained=self.drained.get(name)) for name in SERVICES)
        return RuntimeStatus(
            journal_id=self.journal_id,
            last_seq=len(self.journal),
            accepting=self.accepting,
            reason=self.reason,
            bases=(BASE,),
            services=services,
            active_jobs=len(live),
            partition_bytes=0,
            env_seats_per_tenant=self.env_seats_per_tenant,
            env_namespaces=self.env_namespaces,
            feature_store=FeatureStoreStatus(
                hits=0,
                misses=0,
                ram_bytes=sum(self.features.values()),
                file_bytes=0,
                entries=len(self.features),
                versions=tuple(self.features),
            ),
        )

    def submit(self, message: SubmitJob) -> WorkloadStatus:
        self._reach()
        if self.refuse_submit is not None:
            raise self.refuse_submit
        if not self.accepting:
            raise RuntimeRefused(status=503, code=self.reason or "not_accepting", message="takes no new work")
        if message.policy is not None and message.policy.artifact_id not in self.artifacts:
            sentence = f"no policy {message.policy.artifact_id!r} among the artifacts of this runtime"
            raise RuntimeRefused(status=422, code="policy_missing", message=sentence, field="policy.artifact_id")
        key = (message.job_id, message.attempt)
        with self._lock:
            if key in self.submitted and self.submitted[key] != message:
                raise RuntimeRefused(status=409, code="conflict", message="this attempt was submitted differently")
            if key not in self.submitted:
                self.submitted[key] = message
                self.tell_state(*key, WorkloadState.ACCEPTED)
        if self.lose_answer_of_submit:
            self.lose_answer_of_submit = False
            raise RuntimeUnreachable("the answer was lost", maybe_delivered=True)
        return self.states[key]

    def job_status(self, job_id: str, attempt: int) -> WorkloadStatus | None:
        self._reach()
        return self.states.get((job_id, attempt))

    def cancel(self, job_id: str, attempt: int, stop: StopJob | None = None) -> WorkloadStatus | None:
        self._reach()
        state = self.states.get((job_id, attempt))
        if state is None:
            return None
        self.cancelled.append((job_id, attempt))
        if state.state not in TERMINAL_WORKLOAD_STATES | {WorkloadState.CANCELLING}:
            wish = self.stops.setdefault((job_id, attempt), stop or StopJob())
            self.tell_state(job_id, attempt, WorkloadState.CANCELLING, reason=wish.reason, message=wish.message)
        return self.states[job_id, attempt]

    def events(self, *, after: int, limit: int, wait_s: float) -> EventBatch:
        self._reach()
        events = tuple(event for event in self.journal if event.seq > after)[:limit]
        return EventBatch(journal_id=self.journal_id, events=events, last_seq=len(self.journal))

    def artifact(self, artifact_id: str, *, first: int | None = None, last: int | None = None) -> ArtifactStream:
        self._reach()
        if artifact_id not in self.artifacts:
            raise RuntimeRefused(status=404, code="unknown_artifact", message=f"no artifact {artifact_id}")
        content = self.artifacts[artifact_id]
        if first is not None:
            self.ranges_served.append((first, last))
            content = content[first:] if last is None else content[first : last + 1]
        return ArtifactStream(
            size_bytes=len(content), chunks=_chunks(content), close=lambda: None, is_part=first is not None
        )

    def artifact_delete(self, artifact_id: str) -> int:
        self._reach()
        for key, message in self.submitted.items():
            named = message.policy is not None and message.policy.artifact_id == artifact_id
            if named and self.states[key].state not in TERMINAL_WORKLOAD_STATES:
                sentence = f"attempt {key[1]} of job {key[0]} starts from artifact {artifact_id!r}"
                raise RuntimeRefused(status=409, code="artifact_in_use", message=sentence, field="artifact_id")
        return len(self.artifacts.pop(artifact_id, b""))

    def checkpoints_delete(self, job_id: str, attempt: int) -> int:
        self._reach()
        state = self.states.get((job_id, attempt))
        if state is not None and state.state not in TERMINAL_WORKLOAD_STATES:
            sentence = f"attempt {attempt} of job {job_id} has not ended"
            raise RuntimeRefused(status=409, code="attempt_live", message=sentence, field="attempt")
        return self.checkpoints.pop((job_id, attempt), 0)

    def features_delete(self, version_id: str) -> int:
        self._reach()
        for key, message in self.submitted.items():
            bound = message.dataset is not None and message.dataset.version_id == version_id
            if bound and self.states[key].state not in TERMINAL_WORKLOAD_STATES:
                sentence = f"attempt {key[1]} of job {key[0]} is trained on dataset {version_id!r}"
                raise RuntimeRefused(status=409, code="dataset_in_use", message=sentence, field="version_id")
        return self.features.pop(version_id, 0)

    def service_drain(self, service: str, reason: str) -> RuntimeStatus:
        self._reach()
        _check_service(service)
        self.drained[service] = reason
        return self.status()

    def service_undrain(self, service: str) -> RuntimeStatus:
        self._reach()
        _check_service(service)
        self.drained.pop(service, None)
        return self.status()

    def _reach(self) -> None:
        if self.down:
            raise RuntimeUnreachable("connection refused", maybe_delivered=False)

    # --- what tests tell it ---

    def tell(self, job_id: str | None, attempt: int | None, body: Any, *, tenant_id: str | None = None) -> Event:
        """Append one journal entry; the tenant is the submit's unless given."""
        if tenant_id is None and job_id is not None:
            known = next((m for key, m in self.submitted.items() if key[0] == job_id), None)
            tenant_id = known.tenant_id if known else None
        self.now_us += 1000
        event = Event(
            seq=len(self.journal) + 1,
            job_id=job_id,
            attempt=attempt,
            tenant_id=tenant_id,
            occurred_at_us=self.now_us,
            body=body,
        )
        self.journal.append(event)
        return event

    def end_stopped(self, job_id: str, attempt: int = 1) -> Event:
        """The attempt has come to where it stops."""
        wish = self.stops[job_id, attempt]
        return self.tell_state(job_id, attempt, WorkloadState.CANCELLED, reason=wish.reason, message=wish.message)

    def tell_state(self, job_id: str, attempt: int, state: WorkloadState, **more: Any) -> Event:
        self.states[job_id, attempt] = WorkloadStatus(job_id=job_id, attempt=attempt, state=state, **more)
        return self.tell(job_id, attempt, StateChanged(state=state, **more))

    def train_step(self, keys: list[tuple[str, int]], step: int, *, busy_us: int = 1000, **values: float) -> None:
        """One grouped device step of several attempts: a span, and each one's usage and metrics. Shares are equal."""
        share, overhead = divmod(busy_us, len(keys))
        span_id = f"span-{len(self.journal)}"
        shares: dict[str, int] = {}
        for job_id, attempt in keys:
            tenant_id = self.submitted[job_id, attempt].tenant_id
            shares[tenant_id] = shares.get(tenant_id, 0) + share
        for job_id, attempt in keys:
            lines = (
                UsageLine(meter="train.samples", quantity=16),
                UsageLine(meter="train.compute_us", quantity=share),
            )
            event_id = f"{job_id}:{attempt}:{step}"
            usage = UsageMetered(event_id=event_id, span_id=span_id, step=step, lines=lines, group_size=len(keys))
            self.tell(job_id, attempt, usage)
            self.tell(job_id, attempt, MetricsRecorded(step=step, values={"loss": 1.0 / step, **values}))
        span = SpanMeasured(
            span_id=span_id,
            service="training",
            started_at_us=self.now_us,
            busy_us=busy_us,
            overhead_us=overhead,
            shares=shares,
            group_size=len(keys),
            samples=16 * len(keys),
            tokens=64 * len(keys),
        )
        self.tell(None, None, span)


def _check_service(service: str) -> None:
    if service not in SERVICES:
        sentence = f"service {service!r}; allowed: {', '.join(SERVICES)}"
        raise RuntimeRefused(status=404, code="unknown_service", message=sentence, field="service")


def _chunks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 1 << 16):
        yield content[start : start + (1 << 16)]
