"""What a job said, line by line: its log, and its changes of state in between, in the order of its stream."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from jobs.models import Job, JobEvent
from jobs.selectors.jobs import job_get
from tenants.models import Tenant
from tenants.scope import tenant_scope

_PER_READ = 1000  # lines of a download that are in memory at once


class LogLevel(StrEnum):
    """How grave a line is; in rising order."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


STATE = "state"
"""What stands for a level where a line is a change of state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which lines. ``level``: that or graver, and no changes of state; ``query``: part of the text, case ignored."""

    query: str = ""
    level: LogLevel | None = None
    attempt: int | None = None

    def apply(self, events: QuerySet[JobEvent]) -> QuerySet[JobEvent]:
        wanted = Q(type="log") if self.level else Q(type__in=("log", "state"))
        if self.level not in (None, LogLevel.INFO):
            levels = list(LogLevel)
            wanted &= Q(data__level__in=[str(level) for level in levels[levels.index(LogLevel(self.level)) :]])
        if self.query:
            wanted &= Q(data__message__icontains=self.query)
        if self.attempt is not None:
            wanted &= Q(attempt=self.attempt)
        return events.filter(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """``level`` is that of a log line, or ``state``; ``state`` is the new state, empty for a log line."""

    seq: int
    attempt: int
    level: str
    state: str
    message: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Lines in order. ``seq``: everything up to it was looked at. ``older``, ``newer``: there are more of them."""

    lines: tuple[LogLine, ...]
    seq: int
    older: bool
    newer: bool


def log_page(
    tenant: Tenant,
    job_id: UUID,
    *,
    wanted: LogFilter,
    limit: int,
    after: int | None = None,
    before: int | None = None,
) -> LogPage:
    """At most ``limit`` lines: the first ones after ``after``, the last ones before ``before``, else the newest.

    The job's counter is read first and only lines up to it are told, as everywhere in its stream, so that whoever
    goes on after ``seq`` misses none. Raises the 404 of a missing and of a foreign job.
    """
    with tenant_scope(tenant):
        job = job_get(tenant, job_id)
        events = wanted.apply(JobEvent.objects.filter(job_id=job.pk, seq__lte=job.last_seq))
        if after is not None:
            found = list(events.filter(seq__gt=after).order_by("seq")[: limit + 1])
            lines, newer = found[:limit], len(found) > limit
            seq = lines[-1].seq if newer else max(after, job.last_seq)
            return LogPage(lines=_lines(lines), seq=seq, older=after > 0, newer=newer)
        window = events if before is None else events.filter(seq__lt=before)
        found = list(window.order_by("-seq")[: limit + 1])
        return LogPage(
            lines=_lines(found[:limit][::-1]), seq=job.last_seq, older=len(found) > limit, newer=before is not None
        )


def log_text(tenant: Tenant, job_id: UUID, *, wanted: LogFilter) -> Iterator[str]:
    """Every line as text, ``_PER_READ`` at a time. Raises the 404 before the first one."""
    return _text(tenant, job_get(tenant, job_id), wanted)


def _text(tenant: Tenant, job: Job, wanted: LogFilter) -> Iterator[str]:
    after = 0
    while True:
        with tenant_scope(tenant):
            events = wanted.apply(JobEvent.objects.filter(job_id=job.pk, seq__gt=after, seq__lte=job.last_seq))
            lines = _lines(events.order_by("seq")[:_PER_READ])
        if not lines:
            return
        yield "".join(f"{line_text(line)}\n" for line in lines)
        after = lines[-1].seq


def line_text(line: LogLine) -> str:
    """``2026-11-18T13:20:42.118Z  warning  attempt 1  text``; lines within the text are indented."""
    moment = line.occurred_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    said = f"{line.state}: {line.message}" if line.state and line.message else line.state or line.message
    return f"{moment}  {line.level:<7}  attempt {line.attempt}  " + said.replace("\n", "\n    ")


def _lines(events: Any) -> tuple[LogLine, ...]:
    return tuple(
        LogLine(
            seq=event.seq,
            attempt=event.attempt,
            level=str(event.data.get("level") or LogLevel.INFO) if event.type == "log" else STATE,
            state=str(event.data.get("state", "")) if event.type == "state" else "",
            message=str(event.data.get("message") or event.data.get("reason") or ""),
            occurred_at=event.occurred_at,
        )
        for event in events
    )
