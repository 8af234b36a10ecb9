"""Acts on one's own account, written down in each of the person's tenants: all of them trust that account."""

from typing import Any

from allauth.account.internal.flows.login import record_authentication
from allauth.account.signals import password_changed, password_reset, password_set, user_logged_in
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_added, authenticator_removed, authenticator_reset
from allauth.usersessions.models import UserSession
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest

from tenants.access_changes import access_changed
from tenants.audit.services import audit
from tenants.identity import Actor, memberships_of
from tenants.models import User


@transaction.atomic
def account_audit(user: User, verb: str, **after: Any) -> None:
    """One event per tenant; an operator without a tenant gets one of the platform's."""
    memberships = memberships_of(user)
    for row in memberships:
        by = Actor(tenant=row.tenant, role=row.role, user=user)
        audit(by=by, verb=verb, target=user, name=user.email, tenant=row.tenant, after=after or None)
    if not memberships:
        audit(by=user, verb=verb, target=user, name=user.email, tenant=None, after=after or None)


@receiver(user_logged_in)
def _logged_in(user: User, **_: Any) -> None:
    account_audit(user, "account.logged_in")


@receiver([password_changed, password_reset, password_set])
def _password_changed(user: User, **_: Any) -> None:
    """Every other session of the account ends with its old password."""
    account_audit(user, "account.password_changed")
    access_changed([user.pk])


@receiver(authenticator_added)
def _authenticator_added(user: User, authenticator: Any, request: HttpRequest, **_: Any) -> None:
    """Its first code opened it, so this session has shown it; those that the password alone opened end."""
    account_audit(user, "account.mfa_added", type=str(authenticator.type))
    if authenticator.type != Authenticator.Type.TOTP:
        return
    record_authentication(request, user, "mfa", id=authenticator.pk, type=authenticator.type)
    others = [session for session in UserSession.objects.filter(user=user) if not session.is_current()]
    for session in others:
        session.end()
    if others:
        account_audit(user, "account.sessions_ended", count=len(others))
        access_changed([user.pk])


@receiver(authenticator_removed)
def _authenticator_removed(user: User, authenticator: Any, **_: Any) -> None:
    account_audit(user, "account.mfa_removed", type=str(authenticator.type))


@receiver(authenticator_reset)
def _authenticator_reset(user: User, authenticator: Any, **_: Any) -> None:
    account_audit(user, "account.mfa_reset", type=str(authenticator.type))
