"""Writes of the tenants app: labs, their projects, members, invitations and API keys."""

from tenants.services.invitations import (
    IssuedInvitation,
    invitation_accept,
    invitation_create,
    invitation_revoke,
    invitation_sign_up,
    owner_invite,
)
from tenants.services.keys import IssuedKey, key_create, key_revoke
from tenants.services.labs import tenant_create, tenant_open, tenant_pause, tenant_resume
from tenants.services.members import member_add, member_remove, member_set_role
from tenants.services.projects import project_archive, project_create, project_rename

__all__ = [
    "IssuedInvitation",
    "IssuedKey",
    "invitation_accept",
    "invitation_create",
    "invitation_revoke",
    "invitation_sign_up",
    "key_create",
    "key_revoke",
    "member_add",
    "member_remove",
    "member_set_role",
    "owner_invite",
    "project_archive",
    "project_create",
    "project_rename",
    "tenant_create",
    "tenant_open",
    "tenant_pause",
    "tenant_resume",
]
