"""Jobs: submit, watch, cancel; and what they published."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from joynexus_client.answers import Artifact, Event, EventPage, Job, MetricsPage, PolicyVersion
from joynexus_client.errors import Corrupted, Timeout
from joynexus_client.transport import Transport

ENDED = frozenset({"succeeded", "failed", "cancelled"})
_WAIT_S = 15.0


class Jobs:
    """`client.jobs`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(self, spec: dict[str, Any], *, idempotency_key: str | None = None) -> Job:
        """Queue a job. Give your own ``idempotency_key`` if the program itself may be started twice.

        Raises Invalid, whose ``problems`` name each refused field and what is allowed.
        """
        job: Job = self._transport.post("/api/v1/jobs", spec, idempotency_key=idempotency_key)
        return job

    def get(self, job_id: str) -> Job:
        job: Job = self._transport.get(f"/api/v1/jobs/{job_id}")
        return job

    def list(self, *, state: str | None = None, kind: str | None = None, q: str | None = None) -> Iterator[Job]:
        """Newest first, page by page as you read."""
        return self._transport.pages("/api/v1/jobs", state=state, kind=kind, q=q, limit=200)

    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop. Raises Conflict if it has already succeeded or failed."""
        job: Job = self._transport.post(f"/api/v1/jobs/{job_id}/cancel")
        return job

    def events(self, job_id: str, *, after: int = 0, wait_s: float = 0.0, limit: int = 500) -> EventPage:
        """One page of events after a cursor; waits up to ``wait_s`` (20 at most) for the first one."""
        page: EventPage = self._transport.get(
            f"/api/v1/jobs/{job_id}/events", wait_s=wait_s, after=after, wait=wait_s, limit=limit
        )
        return page

    def follow(self, job_id: str, *, after: int = 0) -> Iterator[Event]:
        """Every event as it happens, each once, until the job has ended."""
        while True:
            page = self.events(job_id, after=after, wait_s=_WAIT_S)
            yield from page["events"]
            after = page["seq"]
            if page["state"] in ENDED and not page["events"]:
                return

    def metrics(
        self,
        job_id: str,
        *,
        series: tuple[str, ...] = (),
        after: int = 0,
        wait_s: float = 0.0,
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
    ) -> MetricsPage:
        """Curves, decimated by the server to ``max_points`` buckets that keep last, minimum and maximum."""
        page: MetricsPage = self._transport.get(
            f"/api/v1/jobs/{job_id}/metrics",
            wait_s=wait_s,
            series=",".join(series) or None,
            after=after,
            wait=wait_s,
            to=to_step,
            max_points=max_points,
            **{"from": from_step},
        )
        return page

    def wait(
        self, job_id: str, *, timeout_s: float | None = None, on_change: Callable[[Job], None] | None = None
    ) -> Job:
        """Wait until a job has ended and return it as it then is. Raises Timeout; the job runs on."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        after = 0
        while True:
            job = self.get(job_id)
            if on_change is not None:
                on_change(job)
            if job["state"] in ENDED:
                return job
            left_s = _WAIT_S if deadline_s is None else deadline_s - time.monotonic()
            if left_s <= 0:
                raise Timeout(f"job {job_id} is still {job['state']} after {timeout_s:g} s")
            after = self.events(job_id, after=after, wait_s=min(left_s, _WAIT_S))["seq"]

    def artifacts(self, job_id: str) -> tuple[Artifact, ...]:
        """What the job published, newest first."""
        return tuple(self._transport.pages(f"/api/v1/jobs/{job_id}/artifacts"))

    def policy_versions(self, job_id: str) -> tuple[PolicyVersion, ...]:
        """Durable policy versions, newest first."""
        return tuple(self._transport.pages(f"/api/v1/jobs/{job_id}/policy-versions"))


class Artifacts:
    """`client.artifacts`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def download(self, artifact_id: str, to: Path | str) -> Path:
        """Save the zip as ``to``: whole and with the promised SHA-256, or not at all. Raises Corrupted."""
        target = Path(to)
        draft = target.with_name(f"{target.name}.{os.getpid()}.part")
        digest = hashlib.sha256()
        try:
            with self._transport.stream(f"/api/v1/artifacts/{artifact_id}/download") as response:
                promised = response.headers["X-Checksum-SHA256"]
                with draft.open("wb") as out:
                    for chunk in response.iter_bytes():
                        digest.update(chunk)
                        out.write(chunk)
            if digest.hexdigest() != promised:
                raise Corrupted(f"artifact {artifact_id}: SHA-256 {digest.hexdigest()}, promised {promised}")
            return draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
