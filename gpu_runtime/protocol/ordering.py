"""What a job of any kind says about how it is ordered: its name, its project, its turn and what it may cost."""

from typing import Annotated

from pydantic import Field, field_validator

from gpu_runtime.protocol.base import Message, shown

PRIORITY_DEFAULT = 5
Name = Annotated[
    str, Field(min_length=1, max_length=200, description="What you call the job; it also gets a number, such as J-12.")
]
Priority = Annotated[
    int, Field(ge=0, le=9, description="Order among your own jobs; higher first. Its price factor is at /prices.")
]
Tag = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,49}$")]
AmountText = Annotated[str, Field(pattern=r"^\d{1,6}(\.\d{1,12})?$", description="Digits, never a JSON number.")]


class JobBudget(Message):
    """Where a job ends, whatever it has still to do: it stops at its next checkpoint and keeps what it made."""

    max_cost: Annotated[
        AmountText | None,
        Field(
            description="Money, in the currency of your plan. The job stops at its next checkpoint after it.",
            json_schema_extra=shown(label="Cost cap"),
        ),
    ] = None
    max_compute_s: Annotated[
        int | None,
        Field(
            ge=1,
            le=10**9,
            description="Measured seconds of all three services, your shares of them.",
            json_schema_extra=shown(label="Compute cap", unit="s"),
        ),
    ] = None


class OrderedSpec(Message):
    """Fields of every kind of job. All but the priority is the control plane's; the runtime only carries it."""

    name: Name
    project: Annotated[
        str | None,
        Field(
            max_length=50,
            pattern=r"^[a-z0-9][a-z0-9-]*$",
            description="Its slug. Default: the API key's project, else the tenant's default one.",
        ),
    ] = None
    priority: Priority = PRIORITY_DEFAULT
    budget: Annotated[JobBudget, Field(description="Where the job ends, whatever it has still to do.")] = JobBudget()
    tags: Annotated[tuple[Tag, ...], Field(max_length=20, description="Words to find the job by.")] = ()
    cloned_from: Annotated[
        str | None, Field(max_length=64, description="Id of the job of yours whose settings this one changes.")
    ] = None

    @field_validator("tags")
    @classmethod
    def _each_tag_once(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := sorted({tag for tag in tags if tags.count(tag) > 1}):
            raise ValueError(f"{repeated[0]!r} is given twice; allowed: each tag once")
        return tags
