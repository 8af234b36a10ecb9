"""`manage.py reset_second_factor EMAIL`: for somebody who lost the phone and the recovery codes."""

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from tenants.access_changes import access_changed
from tenants.audit.services import audit
from tenants.identity import memberships_of
from tenants.models import Tenant, User


class Command(BaseCommand):
    help = "Turn a person's second factor off and end their sessions. Make sure first that it is they who ask."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--reason", required=True, help="kept in the audit log of the person's tenants")

    @transaction.atomic
    def handle(self, *args: Any, email: str, reason: str, **options: Any) -> None:
        user = User.objects.filter(email=email.strip().lower()).first()
        if user is None:
            raise CommandError(f"Nobody has the address {email!r}.")
        removed, _ = Authenticator.objects.filter(user=user).delete()
        if not removed:
            raise CommandError(f"{user.email} has no second factor.")
        for session in UserSession.objects.filter(user=user):
            session.end()
        access_changed([user.pk])
        tenants: list[Tenant | None] = [row.tenant for row in memberships_of(user)]
        for tenant in tenants or [None]:
            audit(by=None, verb="account.mfa_reset", target=user, name=user.email, tenant=tenant, reason=reason)
        self.stdout.write(f"{user.email} logs in with the password alone now.")
