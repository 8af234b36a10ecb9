"""What the runtime's other services tell: predictions, environment steps, published files."""

import hashlib
from typing import Any

from gpu_runtime.protocol.messages import (
    ArtifactPublished,
    Event,
    SpanMeasured,
    UsageLine,
    UsageMetered,
    WorkloadState,
)
from tests.support.memory_runtime import InMemoryRuntime

Key = tuple[str, int]


def predict_group(runtime: InMemoryRuntime, chunks: dict[Key, int], *, busy_us: int, **free: Any) -> None:
    """One forward that answers several jobs: a span, and usage in proportion to each one's chunks."""
    shares = {key: busy_us * count // sum(chunks.values()) for key, count in chunks.items()}
    span_id = f"span-{len(runtime.journal)}"
    for key, count in chunks.items():
        tell_usage(runtime, key, span_id, {"predict.chunks": count, "predict.compute_us": shares[key]}, **free)
    tell_span(runtime, "inference", span_id, shares, busy_us=busy_us)


def environment_use(runtime: InMemoryRuntime, key: Key, *, steps: int, busy_us: int, **free: Any) -> None:
    """One report of a job's sessions: all of the time is its tenant's."""
    span_id = f"span-{len(runtime.journal)}"
    tell_usage(runtime, key, span_id, {"env.steps": steps, "env.compute_us": busy_us}, **free)
    tell_span(runtime, "environment", span_id, {key: busy_us}, busy_us=busy_us)


def tell_usage(runtime: InMemoryRuntime, key: Key, span_id: str, quantities: dict[str, int], **free: Any) -> Event:
    """``free``: billable and reason."""
    lines = tuple(UsageLine(meter=meter, quantity=quantity) for meter, quantity in quantities.items())
    event_id = f"{span_id}/{key[0]}/{key[1]}"
    return runtime.tell(
        *key, UsageMetered(event_id=event_id, span_id=span_id, step=1, lines=lines, group_size=1, **free)
    )


def tell_span(runtime: InMemoryRuntime, service: str, span_id: str, shares: dict[Key, int], *, busy_us: int) -> Event:
    """A measured step; what is nobody's share is overhead."""
    of_tenant: dict[str, int] = {}
    for key, share_us in shares.items():
        tenant_id = runtime.submitted[key].tenant_id
        of_tenant[tenant_id] = of_tenant.get(tenant_id, 0) + share_us
    span = SpanMeasured(
        span_id=span_id,
        service=service,
        started_at_us=runtime.now_us,
        busy_us=busy_us,
        overhead_us=busy_us - sum(shares.values()),
        shares=of_tenant,
        group_size=len(shares),
        samples=1,
        tokens=0,
    )
    return runtime.tell(None, None, span)


def publish(
    runtime: InMemoryRuntime, key: Key, kind: str, content: bytes, *, media_type: str = "application/zip", **more: Any
) -> ArtifactPublished:
    """A file that the gateway serves from now on."""
    body = ArtifactPublished(
        **{
            "artifact_id": f"{key[0]}-{key[1]}-{len(runtime.artifacts)}",
            "kind": kind,
            "media_type": media_type,
            "name": kind,
            "policy_version": 7,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "files": (),
            "manifest": {},
        }
        | more
    )
    runtime.artifacts[body.artifact_id] = content
    runtime.tell(*key, body)
    return body


def succeed(runtime: InMemoryRuntime, key: Key, **more: Any) -> None:
    """The attempt runs and ends well."""
    runtime.tell_state(*key, WorkloadState.RUNNING)
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, **more)
