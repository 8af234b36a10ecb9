"""The videos of a job, filtered by what their manifests say."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from frontend.episodes import CAUSES, outcome_tone
from jobs.models import Artifact
from jobs.selectors.jobs import artifact_list
from tenants.models import Tenant

STEP, LIMIT = 12, 480  # shown at first and more with each "show more"; most at once
_INTEGER_MAX = 2**31 - 1  # of a column, and of a seed
OUTCOMES = {"success": "Success", "fail": "Failure", "error": "Error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """One filmed episode; what its manifest does not say is empty."""

    id: str
    url: str
    outcome: str
    task: str
    seed: str
    instruction: str
    steps: str
    total_return: float | None
    version: int

    @property
    def words(self) -> str:
        return OUTCOMES.get(self.outcome) or CAUSES.get(self.outcome, self.outcome or "unknown outcome")

    @property
    def tone(self) -> str:
        return outcome_tone(self.outcome)

    @property
    def title(self) -> str:
        """How a screen reader names it."""
        return f"{self.task}, seed {self.seed}, {self.words.lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The filters of the address; empty: all."""

    outcome: str = ""
    task: str = ""
    version: str = ""
    seed: str = ""
    shown: int = STEP

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wish":
        """What cannot be meant is taken as not said: an address may be old or typed by hand."""
        texts = {name: query.get(name, "").replace("\0", "").strip()[:200] for name in ("task", "version", "seed")}
        outcome, shown = query.get("outcome", ""), query.get("shown", "")
        return cls(
            outcome=outcome if outcome in OUTCOMES else "",
            task=texts["task"],
            version=_number(texts["version"]),
            seed=_number(texts["seed"]),
            shown=min(LIMIT, max(STEP, int(shown))) if _number(shown) else STEP,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """``found`` match the wish, ``total`` are there; ``tasks`` and ``versions`` are what can be chosen from."""

    videos: tuple[Video, ...]
    found: int
    total: int
    tasks: tuple[str, ...]
    versions: tuple[int, ...]
    wish: Wish

    @property
    def more(self) -> int:
        """How many to show after "show more"; 0 if there are no more, or too many for one page."""
        return min(LIMIT, self.wish.shown + STEP) if len(self.videos) < min(self.found, LIMIT) else 0


def gallery(tenant: Tenant, job_id: UUID, wish: Wish) -> Gallery:
    """Newest first. Raises the same 404 for a missing and for a foreign job."""
    every = artifact_list(tenant, job_id).filter(kind="video", deleted_at=None)
    chosen = _chosen(every, wish)
    shown = [_video(artifact) for artifact in chosen[: wish.shown]]
    tasks = {str(task) for task in every.order_by().values_list("manifest__task", flat=True).distinct() if task}
    versions = every.order_by().values_list("policy_version", flat=True).distinct()
    return Gallery(
        videos=tuple(shown),
        found=chosen.count(),
        total=every.count(),
        tasks=tuple(sorted(tasks)),
        versions=tuple(sorted(versions)),
        wish=wish,
    )


def _chosen(videos: QuerySet[Artifact], wish: Wish) -> QuerySet[Artifact]:
    if wish.outcome:
        videos = videos.filter(manifest__outcome=wish.outcome)
    if wish.task:
        videos = videos.filter(manifest__task=wish.task)
    if wish.version:
        videos = videos.filter(policy_version=int(wish.version))
    if wish.seed:
        videos = videos.filter(manifest__seed=int(wish.seed))
    return videos


def _video(artifact: Artifact) -> Video:
    told = artifact.manifest
    played = told.get("return")
    return Video(
        id=str(artifact.pk),
        url=f"/api/v1/artifacts/{artifact.pk}/download",
        outcome=str(told.get("outcome", "")),
        task=str(told.get("task", "")),
        seed=str(told.get("seed", "")),
        instruction=str(told.get("instruction", "")),
        steps=str(told.get("steps", "")),
        total_return=float(played) if isinstance(played, int | float) else None,
        version=artifact.policy_version,
    )


def _number(text: str) -> str:
    """A whole number both databases can compare with, or nothing."""
    return text if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _INTEGER_MAX else ""
