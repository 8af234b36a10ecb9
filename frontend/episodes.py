"""The episodes of an evaluation, out of the report's file: filtered for a page, or all of them as CSV."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs import runtime_client
from jobs.models import Artifact
from jobs.runtime_client import RuntimeRefused, RuntimeUnreachable

REPORT_BYTES_MAX = 64 * 2**20
CAUSES = {
    "success": "Success",
    "max_steps": "Step limit",
    "terminated": "Ended unsolved",
    "error": "Error",
    "solved_at_reset": "Solved at reset",
}
COLUMNS = ("task", "seed", "outcome", "success_once", "success_at_end", "steps", "return", "error", "initial_state")


class ReportMissing(Exception):
    """The file cannot be read now; the message says why, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One planned episode. ``outcome`` is a key of CAUSES."""

    task: str
    seed: int
    outcome: str
    success_once: bool
    success_at_end: bool
    steps: int
    total_return: float | None
    error: str
    initial_state: str

    @property
    def words(self) -> str:
        return CAUSES.get(self.outcome, self.outcome)

    @property
    def tone(self) -> str:
        """The colour class of its outcome."""
        return outcome_tone(self.outcome)


def outcome_tone(outcome: str) -> str:
    """``succeeded``, ``failed``, or a shade for what is neither."""
    tones = {"success": "succeeded", "error": "cancelling", "solved_at_reset": "cancelled"}
    return tones.get(outcome, "failed")


def read_episodes(artifact: Artifact) -> list[Episode]:
    """Every planned episode in the report's order. Raises ReportMissing."""
    try:
        report = json.loads(_content(artifact))
        return [_episode(task["protocol"]["environment"], row) for task in report["tasks"] for row in task["episodes"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportMissing("The report is not in the form this console knows.") from error


def episodes_csv(episodes: list[Episode]) -> Iterator[str]:
    """Lines of a CSV file. A text that a spreadsheet would take for a formula gets an apostrophe."""
    yield _csv_line(COLUMNS)
    for own in episodes:
        flags = (own.success_once, own.success_at_end)
        figures = (own.steps, "" if own.total_return is None else own.total_return)
        yield _csv_line((own.task, own.seed, own.outcome, *flags, *figures, own.error, own.initial_state))


def _csv_line(cells: tuple[Any, ...]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([_harmless(cell) for cell in cells])
    return out.getvalue()


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _episode(task: str, row: Mapping[str, Any]) -> Episode:
    return Episode(
        task=str(task),
        seed=int(row["seed"]),
        outcome=str(row["cause"]),
        success_once=bool(row["success_once"]),
        success_at_end=bool(row["success_at_end"]),
        steps=int(row["steps"]),
        total_return=row["return"],
        error=row.get("error") or "",
        initial_state=row.get("initial_state") or "",
    )


def _content(artifact: Artifact) -> bytes:
    if artifact.size_bytes > REPORT_BYTES_MAX:
        raise ReportMissing("The report is too large to be listed here; download it.")
    try:
        stream = runtime_client.connect().artifact(artifact.runtime_key)
        try:
            return b"".join(stream.chunks)
        finally:
            stream.close()
    except RuntimeUnreachable as error:
        raise ReportMissing("The GPU runtime, which keeps the report, does not answer. Try again later.") from error
    except RuntimeRefused as error:
        raise ReportMissing(f"The runtime does not hand out the report: {error.message}") from error
