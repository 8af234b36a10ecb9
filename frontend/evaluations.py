"""The report of an evaluation as a page shows it. It came out of a file: whatever is missing is shown as missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class ReportUnreadable(ValueError):
    """The report is not in the form this console knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Percent. ``low`` and ``high``: Wilson 95 % interval; all None where no episode counts."""

    successes: int
    episodes: int
    percent: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What the figures depend on; ``rows``: (name, value) of everything but the seeds and the packages."""

    hash: str
    seeds: str
    rows: tuple[tuple[str, str], ...]
    packages: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of the table: a task, a suite, or everything. Means are of tasks only."""

    name: str
    planned: int
    counted: int
    once: Rate
    at_end: Rate
    error_count: int = 0
    errors: tuple[tuple[int, str], ...] = ()  # (seed, what happened), of a task
    solved_at_reset: int = 0
    distinct_starts: int | None = None
    mean_return: float | None = None
    mean_steps: float | None = None
    predict_p95_ms: float | None = None
    protocol: Protocol | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    tasks: tuple[Line, ...]
    suites: tuple[Line, ...]
    overall: Line

    @property
    def errors(self) -> list[tuple[str, int, str]]:
        """(task, seed, what happened)."""
        return [(task.name, seed, message) for task in self.tasks for seed, message in task.errors]


def read_report(manifest: Mapping[str, Any]) -> Report:
    """The manifest of an ``evaluation`` artifact as rows. Raises ReportUnreadable."""
    try:
        return Report(
            tasks=tuple(_task(row) for row in manifest["tasks"]),
            suites=tuple(_total(row, str(row["suite"])) for row in manifest["suites"]),
            overall=_total(manifest["overall"], "All tasks"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportUnreadable(f"the evaluation's report: {error!r}") from error


def _task(row: Mapping[str, Any]) -> Line:
    latency = row.get("predict") or {}
    return Line(
        name=str(row["protocol"]["environment"]),
        planned=int(row["planned"]),
        counted=int(row["counted"]),
        once=_rate(row["success_once"]),
        at_end=_rate(row["success_at_end"]),
        error_count=len(row.get("errors", ())),
        errors=tuple((int(error["seed"]), str(error["message"])) for error in row.get("errors", ())),
        solved_at_reset=len(row.get("solved_at_reset", ())),
        distinct_starts=row.get("distinct_initial_states"),
        mean_return=row.get("mean_return"),
        mean_steps=row.get("mean_steps"),
        predict_p95_ms=latency.get("p95_ms"),
        protocol=_protocol(row["protocol"], str(row["protocol_hash"])),
    )


def _total(row: Mapping[str, Any], name: str) -> Line:
    return Line(
        name=name,
        planned=int(row["planned"]),
        counted=int(row["counted"]),
        once=_rate(row["success_once"]),
        at_end=_rate(row["success_at_end"]),
        error_count=int(row.get("errors", 0)),
    )


def _rate(row: Mapping[str, Any]) -> Rate:
    return Rate(
        successes=int(row["successes"]),
        episodes=int(row["episodes"]),
        percent=_percent(row["rate"]),
        low=_percent(row["low"]),
        high=_percent(row["high"]),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else round(share * 100, 3)


_PROTOCOL_WORDS = {
    "state": "State vector",
    "control_mode": "Control mode",
    "cameras": "Cameras",
    "render_size": "Rendered at",
    "image_size": "Seen at",
    "max_steps": "Step limit",
    "executed_steps": "Executed of a chunk",
    "goes_on_after_success": "Goes on after success",
    "exact": "Built anew for every episode",
    "policy_version": "Policy version",
    "adapter_id": "Adapter",
}


def _protocol(row: Mapping[str, Any], digest: str) -> Protocol:
    return Protocol(
        hash=digest,
        seeds=seed_words([int(seed) for seed in row["seeds"]]),
        rows=tuple((words, _value(name, row.get(name))) for name, words in _PROTOCOL_WORDS.items() if name in row),
        packages=tuple(sorted((str(name), str(version)) for name, version in row["packages"].items())),
    )


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "none"
    if value is None:
        return "the task's own" if name == "max_steps" else "–"
    return f"{value}\u00a0px" if name in {"render_size", "image_size"} else str(value)


def seed_words(seeds: Sequence[int]) -> str:
    """``50000–50049 (50)`` where they count up, else the first few and how many."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}–{seeds[-1]} ({len(seeds)})"
    told = ", ".join(str(seed) for seed in seeds[:8])
    return told if len(seeds) <= 8 else f"{told}, … ({len(seeds)})"
