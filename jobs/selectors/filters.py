"""Which of a tenant's jobs are wanted, and in which order: the same for REST, the console's pages and its CSV."""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from jobs.models import Job, JobTag
from jobs.states import LIVE

STATE_LIVE = "live"
_HANDLE = re.compile(r"(?:j-?)?(\d{1,9})", re.IGNORECASE)


class JobSort(StrEnum):
    """The orders an index gives; the job's number decides between equals, so that each has one place."""

    NEWEST = "-created_at"
    OLDEST = "created_at"
    NAME = "name"
    NAME_BACK = "-name"

    @property
    def column(self) -> str:
        return self.value.removeprefix("-")

    @property
    def falls(self) -> bool:
        return self.value.startswith("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Empty text and None: any, but for archived jobs, which are hidden unless asked for (None: both).

    ``state`` is a `JobState` or ``live``; ``owner`` a user's id; ``project`` a slug; ``ended_days``: ended within so
    many days. ``query`` is a part of the name, of the note or of a tag, the job's id, its number or ``J-12``.
    """

    state: str = ""
    kind: str = ""
    head: str = ""
    base_model: str = ""
    owner: int | None = None
    tag: str = ""
    project: str = ""
    priority: int | None = None
    query: str = ""
    ended_days: int | None = None
    archived: bool | None = False
    sort: JobSort = JobSort.NEWEST

    def apply(self, jobs: QuerySet[Job]) -> QuerySet[Job]:
        """Needs the tenant's scope to be open."""
        wanted = {
            "kind": self.kind,
            "head": self.head,
            "base_model": self.base_model,
            "created_by": self.owner,
            "tags__name": self.tag,
            "project__slug": self.project,
            "priority": self.priority,
        }
        jobs = jobs.filter(**{name: value for name, value in wanted.items() if value not in ("", None)})
        if self.state:
            jobs = jobs.filter(state__in=LIVE) if self.state == STATE_LIVE else jobs.filter(state=self.state)
        if self.archived is not None:
            jobs = jobs.filter(archived_at__isnull=not self.archived)
        if self.ended_days is not None:
            jobs = jobs.filter(finished_at__gte=timezone.now() - timedelta(days=self.ended_days))
        return (jobs.filter(_found(self.query)) if self.query else jobs).order_by(*order_of(self.sort))


def order_of(sort: JobSort, *, back: bool = False) -> tuple[str, str]:
    """Columns to order by; ``back``: from the other end."""
    sign = "-" if sort.falls != back else ""
    return f"{sign}{sort.column}", f"{sign}number"


def _found(query: str) -> Q:
    """The tags are read once, not once for each job."""
    tagged = JobTag.objects.filter(name__icontains=query).values("job_id")
    found = Q(name__icontains=query) | Q(note__icontains=query) | Q(pk__in=tagged)
    if handle := _HANDLE.fullmatch(query):
        found |= Q(number=int(handle[1]))
    try:
        return found | Q(pk=UUID(query))
    except ValueError:
        return found
