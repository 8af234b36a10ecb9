"""Query strings of the jobs API. Unknown parameters are refused by name."""

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.ordering import Tag
from jobs.api.paging import CURSOR_LENGTH_MAX
from jobs.models import ArtifactKind
from jobs.selectors.filters import JobFilter, JobSort
from jobs.selectors.series import POINTS_DEFAULT, POINTS_MAX
from tenants.listing import PageQuery

WAIT_MAX_S = 20.0
FOUND_IN = "Part of the name, the note or a tag; or the job's id, its number, J-12."
WantedState = Literal["queued", "starting", "running", "cancelling", "succeeded", "failed", "cancelled", "live"]
JobKind = Literal["sft", "rl", "evaluation", "rollout"]
JOB_KINDS: tuple[str, ...] = get_args(JobKind)
Step = Annotated[int, Field(ge=0, le=10_000_000)]


class JobListQuery(PageQuery):
    """Which jobs."""

    cursor: Annotated[str | None, Field(max_length=CURSOR_LENGTH_MAX)] = None
    state: WantedState | None = None
    kind: JobKind | None = None
    head: Annotated[str, Field(max_length=20, description="Type of the action head.")] = ""
    base_model: Annotated[str, Field(max_length=100)] = ""
    owner: Annotated[str, Field(max_length=254, description="E-mail address of who submitted it.")] = ""
    tag: Tag | None = None
    project: Annotated[str, Field(max_length=50, description="Slug of a project.")] = ""
    priority: Annotated[int | None, Field(ge=0, le=9)] = None
    archived: Literal["false", "true", "all"] = "false"
    q: Annotated[str, Field(max_length=200, description=FOUND_IN)] = ""
    sort: JobSort = JobSort.NEWEST

    def wanted(self, owner: int | None) -> JobFilter:
        """``owner``: the id of the user whose address was given."""
        return JobFilter(
            state=self.state or "",
            kind=self.kind or "",
            head=self.head,
            base_model=self.base_model,
            owner=owner,
            tag=self.tag or "",
            project=self.project,
            priority=self.priority,
            query=self.q,
            archived={"false": False, "true": True, "all": None}[self.archived],
            sort=self.sort,
        )


class ArtifactListQuery(PageQuery):
    """Which published files."""

    kind: ArtifactKind | None = None


class Formatted(Message):
    """Of what is told as JSON and as CSV; an Accept header says the same."""

    format: Literal["json", "csv"] | None = None


class _After(Message):
    after: Annotated[int, Field(ge=0, description="Number of the newest row you have.")] = 0
    wait: Annotated[float, Field(ge=0, le=WAIT_MAX_S, description="Seconds to wait for the first new row.")] = 0.0


class EventsQuery(_After):
    """Events after a cursor."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100


class MetricsQuery(_After, Formatted):
    """Curves, whole or within a range of steps."""

    series: Annotated[str | None, Field(max_length=2000, description="Names, separated by commas.")] = None
    from_: Annotated[Step | None, Field(alias="from", description="First step.")] = None
    to: Annotated[Step | None, Field(description="Last step.")] = None
    max_points: Annotated[int, Field(ge=1, le=POINTS_MAX, description="Buckets per curve.")] = POINTS_DEFAULT

    @field_validator("series")
    @classmethod
    def _names_are_not_empty(cls, value: str | None) -> str | None:
        if value is not None and not all(name.strip() for name in value.split(",")):
            raise ValueError("expected names separated by commas, none of them empty")
        return value

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.series.split(",")) if self.series else ()
