"""The one story of the tests: Alice owns a lab, Bob researches there, Vera watches, Charlie owns another lab.

Charlie must see nothing of Alice's, ever.
"""

import uuid
from dataclasses import dataclass
from typing import Any

from django.test import Client
from rest_framework.test import APIClient

from tenants.identity import Actor
from tenants.models import ApiKey, Role, Tenant, User
from tests.support.factories import PASSWORD, MembershipFactory, TenantFactory, UserFactory, make_key


class Api(APIClient):
    """A REST client with an API key; POSTs carry a fresh Idempotency-Key unless one is given."""

    default_format = "json"

    def post(self, path: str, data: Any = None, **extra: Any) -> Any:
        headers = {"Idempotency-Key": str(uuid.uuid4()), **(extra.pop("headers", None) or {})}
        return super().post(path, data, headers=headers, **extra)


def api_client(key: str | None = None) -> Api:
    """A client that shows server errors as 500 answers, as a real caller sees them."""
    api = Api(raise_request_exception=False)
    if key is not None:
        api.credentials(HTTP_AUTHORIZATION=f"Bearer {key}")
    return api


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A member of one tenant with an API key of the same role."""

    user: User
    tenant: Tenant
    role: str
    key_row: ApiKey
    key: str

    @property
    def api(self) -> Api:
        return api_client(self.key)

    @property
    def actor(self) -> Actor:
        return Actor(tenant=self.tenant, role=self.role, user=self.user)

    def browser(self) -> Client:
        """A logged-in browser; `enforce_csrf_checks` is left to the tests that are about it."""
        client = Client()
        assert client.login(email=self.user.email, password=PASSWORD)
        return client


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everybody."""

    alice: Person
    bob: Person
    viewer: Person
    charlie: Person


def make_person(name: str, tenant: Tenant, role: str) -> Person:
    user = UserFactory(email=f"{name}@example.org")
    MembershipFactory(tenant=tenant, user=user, role=role)
    row, key = make_key(tenant, role, user)
    return Person(user=user, tenant=tenant, role=role, key_row=row, key=key)


def make_story() -> Story:
    lab, other_lab = TenantFactory(name="Alice's lab"), TenantFactory(name="Charlie's lab")
    return Story(
        alice=make_person("alice", lab, Role.OWNER),
        bob=make_person("bob", lab, Role.RESEARCHER),
        viewer=make_person("vera", lab, Role.VIEWER),
        charlie=make_person("charlie", other_lab, Role.OWNER),
    )
