"""Films of played episodes: of an evaluation, or of all evaluations of what a training job made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frontend.episodes import CAUSES, outcome_tone
from jobs.models import Artifact

PER_PAGE = 24
LAST_PICTURE_STEPS = 10  # the runtime shows a film's last picture as long as so many steps; a test compares
START = "start"  # the version of the policy that a job started from
OUTCOMES = {"success": "Success", "fail": "Failure", "error": "Error"}
_INTEGER_MAX = 2**31 - 1  # of a column, and of a seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """One filmed episode; what its manifest does not say is empty.

    ``version_word``: how the policy that played is called here; ``evaluation``: number and name of the job that
    filmed it, empty on that job's own page. ``limit``: how many steps it might have taken.
    """

    id: str
    url: str
    outcome: str
    task: str
    seed: str
    instruction: str
    steps: str
    limit: str
    total_return: float | None
    version: str
    version_word: str
    evaluation: str = ""
    evaluation_id: str = ""

    @property
    def frames(self) -> str:
        """How many steps long the film is: one picture each, and the last one longer; empty if it does not say."""
        return str(int(self.steps) + LAST_PICTURE_STEPS) if self.steps.isdecimal() else ""

    @property
    def words(self) -> str:
        return OUTCOMES.get(self.outcome) or CAUSES.get(self.outcome, self.outcome or "unknown outcome")

    @property
    def tone(self) -> str:
        return outcome_tone(self.outcome)

    @property
    def title(self) -> str:
        """How a screen reader names it."""
        return f"{self.task}, seed {self.seed}, {self.version_word}, {self.words.lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The filters of the address; empty: all. ``together``: films of one start by several versions, in rows."""

    outcome: str = ""
    task: str = ""
    version: str = ""
    seed: str = ""
    together: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wish":
        """What cannot be meant is taken as not said: an address may be old or typed by hand."""
        texts = {name: query.get(name, "").replace("\0", "").strip()[:200] for name in ("task", "version", "seed")}
        outcome, page = query.get("outcome", ""), _number(query.get("page", ""))
        return cls(
            outcome=outcome if outcome in OUTCOMES else "",
            task=texts["task"],
            version=START if texts["version"] == START else _number(texts["version"]),
            seed=_number(texts["seed"]),
            together=query.get("together") == "1",
            page=max(1, int(page or 1)),
        )

    @property
    def filtered(self) -> bool:
        return bool(self.outcome or self.task or self.version or self.seed)


def video_of(artifact: Artifact, *, version: str, version_word: str, limit: str = "", own: bool = True) -> Video:
    """A film as the gallery shows it; ``own``: on the page of the evaluation that made it."""
    told: dict[str, Any] = artifact.manifest
    played = told.get("return")
    return Video(
        id=str(artifact.pk),
        url=f"/api/v1/artifacts/{artifact.pk}/download",
        outcome=str(told.get("outcome", "")),
        task=str(told.get("task", "")),
        seed=str(told.get("seed", "")),
        instruction=str(told.get("instruction", "")),
        steps=str(told.get("steps", "")),
        limit=limit,
        total_return=float(played) if isinstance(played, int | float) else None,
        version=version,
        version_word=version_word,
        evaluation="" if own else f"J-{artifact.job.number} {artifact.job.name}",
        evaluation_id="" if own else str(artifact.job_id),
    )


def step_limits(manifest: Mapping[str, Any]) -> dict[str, str]:
    """By task: how many steps an episode may take, as far as an evaluation's report says."""
    try:
        rows = [(row["protocol"]["environment"], row["protocol"]["max_steps"]) for row in manifest["tasks"]]
    except (KeyError, TypeError):
        return {}
    return {str(task): str(limit) for task, limit in rows if limit}


def _number(text: str) -> str:
    """A whole number both databases can compare with, or nothing."""
    return text if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _INTEGER_MAX else ""
