"""Jobs: submit, watch, cancel; and what they published."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Unpack

from joynexus_client.answers import (
    Artifact,
    ArtifactKind,
    BulkAction,
    BulkResult,
    Estimate,
    EvaluationReport,
    Event,
    EventPage,
    Job,
    JobSort,
    JobsWanted,
    LogLevel,
    LogPage,
    MetricsPage,
    PolicyVersion,
)
from joynexus_client.errors import Invalid, Timeout
from joynexus_client.transport import Transport

ENDED = frozenset({"succeeded", "failed", "cancelled"})
_WAIT_S = 15.0
_POLL_S = 0.5


class Jobs:
    """`client.jobs`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(self, spec: dict[str, Any], *, idempotency_key: str | None = None) -> Job:
        """Queue a job of any kind. Give your own ``idempotency_key`` if the program itself may be started twice.

        Raises Invalid, whose ``problems`` name each refused field and what is allowed.
        """
        job: Job = self._transport.post("/api/v1/jobs", spec, idempotency_key=idempotency_key)
        return job

    def estimate(self, spec: dict[str, Any]) -> Estimate:
        """What submitting this would cost, whether it would be admitted, and its place in line. Changes nothing.

        Raises Invalid as `submit` does.
        """
        estimate: Estimate = self._transport.post("/api/v1/jobs/estimate", spec)
        return estimate

    def get(self, job_id: str) -> Job:
        job: Job = self._transport.get(f"/api/v1/jobs/{job_id}")
        return job

    def list(
        self,
        *,
        sort: JobSort | None = None,
        limit: int = 200,
        **wanted: Unpack[JobsWanted],
    ) -> Iterator[Job]:
        """Newest first unless ``sort`` says otherwise, read by pages of ``limit`` as you go on."""
        return self._transport.pages("/api/v1/jobs", sort=sort, limit=limit, **wanted)

    def describe(
        self,
        job_id: str,
        *,
        name: str | None = None,
        note: str | None = None,
        tags: Iterable[str] | None = None,
        archived: bool | None = None,
        if_match: str | None = None,
    ) -> Job:
        """Change what people say of a job; what is None stays. ``tags`` are all of them, ``note`` is Markdown.

        With ``if_match``, the `etag` of a job, raises Stale if somebody changed it meanwhile. Raises Conflict for
        archiving a live job, Invalid for a field that is not allowed.
        """
        given = {"name": name, "note": note, "tags": None if tags is None else [*tags], "archived": archived}
        changes = {key: value for key, value in given.items() if value is not None}
        job: Job = self._transport.patch(f"/api/v1/jobs/{job_id}", changes, if_match=if_match)
        return job

    def etag(self, job_id: str) -> str:
        """The version of what people say of a job, for `describe`."""
        return self._transport.etag(f"/api/v1/jobs/{job_id}")

    def bulk(self, action: BulkAction, job_ids: Iterable[str], *, tag: str = "") -> tuple[BulkResult, ...]:
        """Do one act to up to 200 jobs. Each is done or refused on its own; ``done`` says which."""
        body = {"jobs": [*job_ids], "action": action, **({"tag": tag} if tag else {})}
        return tuple(self._transport.post("/api/v1/jobs/bulk", body)["results"])

    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop. Raises Conflict if it has already succeeded or failed."""
        job: Job = self._transport.post(f"/api/v1/jobs/{job_id}/cancel")
        return job

    def retry(self, job_id: str, *, idempotency_key: str | None = None) -> Job:
        """Submit the specification of a job that has ended once more; the new job is `cloned_from` the old one.

        Raises Conflict while the old one lives, and whatever `submit` does.
        """
        job: Job = self._transport.post(f"/api/v1/jobs/{job_id}/retry", idempotency_key=idempotency_key)
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

    def wait_recorded(self, job_id: str, *, timeout_s: float = 600.0) -> str:
        """Wait until a rollout job's episodes are a dataset version and return its id; `datasets.wait_ready` goes on.

        Raises Timeout, and Invalid with the reason if taking them in was given up; `retry_import` tries again.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            job = self.get(job_id)
            if job["recorded"]:
                return str(job["recorded"][0]["version_id"])
            under_way = job["dataset_import"]
            if under_way is not None and under_way["state"] == "failed":
                raise Invalid(422, {"type": "import-failed", "detail": under_way["reason"]})
            if time.monotonic() >= deadline_s:
                raise Timeout(f"job {job_id} has made no dataset version after {timeout_s:g} s")
            self._transport.pause(_POLL_S)

    def retry_import(self, job_id: str) -> Job:
        """Have recorded episodes taken in anew after that was given up. Raises Conflict if there are none."""
        job: Job = self._transport.post(f"/api/v1/jobs/{job_id}/dataset-import")
        return job

    def artifacts(self, job_id: str, *, kind: ArtifactKind | None = None) -> tuple[Artifact, ...]:
        """What the job published, newest first."""
        return tuple(self._transport.pages(f"/api/v1/jobs/{job_id}/artifacts", kind=kind, limit=200))

    def evaluation(self, job_id: str) -> EvaluationReport:
        """The full report of an evaluation job. Raises Conflict until there is one."""
        report: EvaluationReport = self._transport.get(f"/api/v1/jobs/{job_id}/evaluation")
        return report

    def episodes_csv(self, job_id: str, to: Path | str) -> Path:
        """Save the episodes of an evaluation as a table, one row each."""
        return self._transport.save(f"/api/v1/jobs/{job_id}/evaluation", Path(to), accept="text/csv")

    def metrics_csv(self, job_id: str, to: Path | str, *, series: tuple[str, ...] = ()) -> Path:
        """Save every metric point as a table; nothing is decimated."""
        names = ",".join(series) or None
        return self._transport.save(f"/api/v1/jobs/{job_id}/metrics", Path(to), accept="text/csv", series=names)

    def logs(
        self,
        job_id: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 500,
        q: str | None = None,
        level: LogLevel | None = None,
        attempt: int | None = None,
    ) -> LogPage:
        """Lines of the log in order: the first after a number, the last before one, else the newest."""
        page: LogPage = self._transport.get(
            f"/api/v1/jobs/{job_id}/logs", after=after, before=before, limit=limit, q=q, level=level, attempt=attempt
        )
        return page

    def log_text(self, job_id: str, to: Path | str) -> Path:
        """Save the whole log as text, a line each."""
        return self._transport.save(f"/api/v1/jobs/{job_id}/logs", Path(to), accept="text/plain")

    def policy_versions(self, job_id: str) -> tuple[PolicyVersion, ...]:
        """Durable policy versions, newest first."""
        return tuple(self._transport.pages(f"/api/v1/jobs/{job_id}/policy-versions"))
