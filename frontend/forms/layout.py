"""Where a field stands: in which section, and whether it is seen at once or folded away.

A field that is named nowhere here is shown too: in the section of what it belongs to, folded unless it is required.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionPlan:
    """``members``: fields of the specification, by name, in their order."""

    title: str
    members: tuple[str, ...]


SECTIONS = (
    SectionPlan(title="Goal", members=("name", "tags", "cloned_from")),
    SectionPlan(title="Start from", members=("base_model", "head", "lora", "policy")),
    SectionPlan(
        title="Data and environment",
        members=("dataset", "environment", "environments", "dataset_name", "executed_steps", "normalization"),
    ),
    SectionPlan(title="Settings", members=()),  # and whatever else there is
    SectionPlan(title="Limits", members=("budget", "priority", "project")),
)
ROOMY = 2  # the first sections hold few fields with long values
REST = 3  # the section of fields that no plan names
AT_ONCE = frozenset(
    {
        "tags",
        "normalization",
        "head.horizon",
        "lora.rank",
        "lora.alpha",
        "lora.target_modules",
        "dataset.image_size",
        "dataset.cameras",
        "environment.state",
        "environment.max_steps",
        "environments.#.state",
        "environments.#.max_steps",
        "executed_steps",
        "training.batch_size",
        "training.max_env_steps",
        "training.holdout_fraction",
        "optimizer.lr",
        "algorithm.group_size",
        "collection.seats",
        "collection.episodes",
        "collection.max_staleness",
        "episodes",
        "only_successes",
        "parallel",
        "videos_per_outcome",
        "budget.max_cost",
        "budget.max_compute_s",
        "priority",
        "project",
    }
)
"""Optional fields that most people set; rows are written ``#``."""

WIDE = frozenset({"base_model", "policy.artifact", "dataset.id", "environment.id", "environments.#.id"})
"""Fields that take the whole width."""

HIDDEN = frozenset({"cloned_from"})


def section_of(member: str) -> int:
    """The section of a member of the specification."""
    return next((number for number, plan in enumerate(SECTIONS) if member in plan.members), REST)


def place_of(member: str) -> int:
    """Its place within the section; what is not named comes last, in the order of the model."""
    members = SECTIONS[section_of(member)].members
    return members.index(member) if member in members else len(members)


def pattern_of(name: str) -> str:
    """``environments.3.id`` is ``environments.#.id``."""
    return re.sub(r"\.\d+(?=\.|$)", ".#", name)
