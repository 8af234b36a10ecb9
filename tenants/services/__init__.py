"""Writes of the tenants app: labs, their projects, members, invitations and API keys."""

from tenants.services.keys import IssuedKey, key_create, key_revoke
from tenants.services.labs import tenant_create, tenant_pause, tenant_resume
from tenants.services.members import member_add, member_remove, member_set_role

__all__ = [
    "IssuedKey",
    "key_create",
    "key_revoke",
    "member_add",
    "member_remove",
    "member_set_role",
    "tenant_create",
    "tenant_pause",
    "tenant_resume",
]
