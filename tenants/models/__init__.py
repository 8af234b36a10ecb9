"""Rows of the tenants app."""

from tenants.models.keys import ApiKey, IdempotencyRecord
from tenants.models.people import Invitation, Membership, Role, User, UserManager
from tenants.models.tenant import DEFAULT_CURRENCY, DEFAULT_PROJECT, Project, Tenant, TenantState

__all__ = [
    "DEFAULT_CURRENCY",
    "DEFAULT_PROJECT",
    "ApiKey",
    "IdempotencyRecord",
    "Invitation",
    "Membership",
    "Project",
    "Role",
    "Tenant",
    "TenantState",
    "User",
    "UserManager",
]
