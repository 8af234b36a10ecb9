"""The way of a job through its states: how long it spent in each, how far it is, and when it will be done."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.models import Job
from jobs.selectors.pace import Pace
from jobs.states import JobState

_BEFORE_WORK = (JobState.QUEUED, JobState.STARTING)
_WAY = (*_BEFORE_WORK, JobState.RUNNING)
_STEPS_FOR_A_GUESS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A job entered ``state`` at that moment."""

    state: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A state that is over, and the time spent in it, however often it was entered."""

    state: JobState
    spent: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLine:
    """``since``: when the present state was entered. ``left``, ``done_at``: None where nobody can know them yet."""

    past: tuple[Phase, ...]
    to_come: tuple[JobState, ...]
    since: datetime
    left: timedelta | None
    done_at: datetime | None


def state_line(job: Job, entries: Sequence[Entry], pace: Pace | None, *, now: datetime) -> StateLine:
    """What the line on a job's page says. ``entries`` in order; ``now`` is the server's clock."""
    entries = entries or [Entry(state=job.state, at=job.created_at)]
    spent = time_in_states(entries, until=job.finished_at or now)
    before = _BEFORE_WORK[: _BEFORE_WORK.index(JobState(job.state))] if job.state in _BEFORE_WORK else _BEFORE_WORK
    left = time_left(step=job.step, total=job.total_steps, pace=pace) if job.state == JobState.RUNNING else None
    return StateLine(
        past=tuple(Phase(state=state, spent=spent[state]) for state in before if state in spent),
        to_come=_WAY[_WAY.index(JobState(job.state)) + 1 :] if job.state in _WAY else (),
        since=_since(entries, job.state),
        left=left,
        done_at=None if left is None else now + left,
    )


def time_in_states(entries: Iterable[Entry], *, until: datetime) -> dict[str, timedelta]:
    """Time in each state, added up over several stays; clocks that disagree never make it negative."""
    spent: dict[str, timedelta] = {}
    moves = list(entries)
    ends = [*(entry.at for entry in moves[1:]), until]
    for entry, end in zip(moves, ends, strict=True):
        spent[entry.state] = spent.get(entry.state, timedelta(0)) + max(end - entry.at, timedelta(0))
    return spent


def time_left(*, step: int, total: int, pace: Pace | None) -> timedelta | None:
    """At the recent pace; None before there is one, or once every step is done."""
    if pace is None or pace.steps < _STEPS_FOR_A_GUESS or pace.seconds <= 0 or step >= total:
        return None
    return timedelta(seconds=(total - step) * pace.seconds / pace.steps)


def _since(entries: Sequence[Entry], state: str) -> datetime:
    """The first entry of the present stay: notes repeat a state, they do not enter it again."""
    at = entries[-1].at
    for entry in reversed(entries):
        if entry.state != state:
            break
        at = entry.at
    return at
