"""What each role may do: one table, read by the API, the pages and the tests."""

from collections.abc import Iterable
from enum import StrEnum

from tenants.models import Role


class Permission(StrEnum):
    """A right inside one tenant."""

    JOBS_READ = "jobs:read"  # jobs with their events, metrics and artifacts
    JOBS_WRITE = "jobs:write"  # submit and cancel
    DATASETS_READ = "datasets:read"
    DATASETS_WRITE = "datasets:write"  # upload and delete
    MEMBERS_READ = "members:read"
    MEMBERS_MANAGE = "members:manage"  # add, change, remove; see and revoke everybody's keys
    KEYS_MANAGE = "keys:manage"  # one's own API keys, never stronger than oneself
    BILLING_READ = "billing:read"  # prices, usage and cost
    BILLING_MANAGE = "billing:manage"  # budgets
    RUNTIME_READ = "runtime:read"  # utilization of the shared services
    PROJECTS_READ = "projects:read"
    PROJECTS_MANAGE = "projects:manage"  # create, rename, archive
    QUOTAS_READ = "quotas:read"  # limits and how much of them is used
    QUOTAS_MANAGE = "quotas:manage"  # limits of the tenant's own projects
    WEBHOOKS_MANAGE = "webhooks:manage"  # read and write
    AUDIT_READ = "audit:read"  # who did what in the tenant


_READ = frozenset(
    {
        Permission.JOBS_READ,
        Permission.DATASETS_READ,
        Permission.MEMBERS_READ,
        Permission.BILLING_READ,
        Permission.RUNTIME_READ,
        Permission.PROJECTS_READ,
        Permission.QUOTAS_READ,
    }
)

ROLE_PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.OWNER: frozenset(Permission),
    Role.ADMIN: frozenset(Permission),
    Role.RESEARCHER: _READ | {Permission.JOBS_WRITE, Permission.DATASETS_WRITE, Permission.KEYS_MANAGE},
    Role.VIEWER: _READ,
    Role.BILLING: frozenset(
        {
            Permission.BILLING_READ,
            Permission.BILLING_MANAGE,
            Permission.JOBS_READ,
            Permission.MEMBERS_READ,
            Permission.PROJECTS_READ,
            Permission.QUOTAS_READ,
        }
    ),
}


def permissions_of(role: str) -> frozenset[Permission]:
    """Rights of a role; a role this table does not know has none."""
    return ROLE_PERMISSIONS[Role(role)] if role in Role.values else frozenset()


def may_grant(granter: str, role: str) -> bool:
    """True if somebody with ``granter``'s role may hand out ``role``: nobody gives more than they have.

    Only owners make owners, though an admin's rights are the same.
    """
    if role == Role.OWNER:
        return granter == Role.OWNER
    return permissions_of(role) <= permissions_of(granter)


def narrowed(role: str, scopes: Iterable[str]) -> frozenset[Permission]:
    """Rights of a role that are also among ``scopes``; without scopes all of them. Unknown scopes give nothing."""
    rights, wanted = permissions_of(role), frozenset(scopes)
    return frozenset(right for right in rights if right in wanted) if wanted else rights
