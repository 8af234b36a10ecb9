"""`manage.py bootstrap`: a tenant, its owner and an API key, printed as one JSON line."""

import getpass
import json
import secrets
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from tenants.billing.currencies import MINOR_PLACES
from tenants.billing.seeds import add_missing_prices
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import DEFAULT_CURRENCY, Role, User
from tenants.scope import tenant_scope
from tenants.services import key_create, tenant_create


class Command(BaseCommand):
    help = "Create a tenant with its owner and an API key; prints JSON. Without --password-file one is made up."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="name of the lab")
        parser.add_argument("--email", required=True, help="its owner; made if new")
        parser.add_argument(
            "--currency",
            default=DEFAULT_CURRENCY,
            choices=sorted(MINOR_PLACES),
            help=f"of its bills, for good; needs a plan with a price of every meter (default {DEFAULT_CURRENCY})",
        )
        parser.add_argument("--password-file", type=Path, help="first line is the new owner's password")
        parser.add_argument("--ask-password", action="store_true", help="ask for it on the terminal")
        parser.add_argument("--staff", action="store_true", help="the owner is also an operator (Django's admin)")

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        add_missing_prices()
        user, password = _owner(options)
        try:
            tenant = tenant_create(name=options["tenant"], owner=user, currency=options["currency"])
        except ApplicationError as error:
            raise CommandError(error.detail) from error
        with tenant_scope(tenant):
            owner = Actor(tenant=tenant, role=Role.OWNER, user=user)
            issued = key_create(actor=owner, name="bootstrap", role=Role.OWNER)
        answer = {
            "tenant_id": str(tenant.pk),
            "tenant": tenant.name,
            "email": user.email,
            "password": password,
            "api_key": issued.text,
        }
        self.stdout.write(json.dumps(answer))


def _owner(options: dict[str, Any]) -> tuple[User, str | None]:
    """(the owner, the password that was made up for them or None)."""
    email = options["email"].strip().lower()
    known = User.objects.filter(email=email).first()
    if known is not None:
        return known, None
    given = _given_password(options)
    password = given or secrets.token_urlsafe(12)
    staff = options["staff"]
    user = User.objects.create_user(email, password, is_staff=staff, is_superuser=staff)
    return user, None if given else password


def _given_password(options: dict[str, Any]) -> str | None:
    if options["ask_password"]:
        return getpass.getpass("Password: ")
    if options["password_file"] is None:
        return None
    try:
        lines = options["password_file"].read_text().splitlines()
    except OSError as error:
        raise CommandError(f"--password-file: {error}") from error
    if not lines or len(lines[0]) < 8:
        raise CommandError("--password-file: the first line must be a password of at least 8 characters")
    return lines[0]
