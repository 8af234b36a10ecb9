"""Where a dataset version comes from and what was made from it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenants.datasets.models import DatasetVersion
from tenants.datasets.selectors import version_list
from tenants.models import Tenant

GENERATIONS_MAX = 50  # each way; one query per generation
DESCENDANTS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """``truncated``: there are more generations, or more descendants, than are shown."""

    ancestors: Sequence[DatasetVersion]  # parent first
    descendants: Sequence[DatasetVersion]  # nearest generation first; each names its parent
    truncated: bool


def lineage_of(tenant: Tenant, version: DatasetVersion) -> Lineage:
    """By ``derived_from``, which is set once at upload: there is no circle."""
    ancestors, more_up = _ancestors(tenant, version)
    descendants, more_down = _descendants(tenant, version)
    return Lineage(ancestors=ancestors, descendants=descendants, truncated=more_up or more_down)


def _ancestors(tenant: Tenant, version: DatasetVersion) -> tuple[list[DatasetVersion], bool]:
    found: list[DatasetVersion] = []
    parent_id = version.derived_from_id
    while parent_id is not None and len(found) < GENERATIONS_MAX:
        parent = version_list(tenant).get(pk=parent_id)
        found.append(parent)
        parent_id = parent.derived_from_id
    return found, parent_id is not None


def _descendants(tenant: Tenant, version: DatasetVersion) -> tuple[list[DatasetVersion], bool]:
    found: list[DatasetVersion] = []
    generation = [version]
    for _ in range(GENERATIONS_MAX):
        children = version_list(tenant).filter(derived_from__in=[row.pk for row in generation])
        generation = list(children[: DESCENDANTS_MAX - len(found) + 1])
        found += generation
        if not generation or len(found) > DESCENDANTS_MAX:
            break
    return found[:DESCENDANTS_MAX], bool(generation)
