"""Everybody who might call a route, and rows of Alice's lab for every parameter a route has."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from jobs.models import Artifact
from tenants.models import Invitation, Membership, Role
from tenants.permissions import Permission
from tenants.scope import platform_scope
from tenants.services.invitations import token_sha256
from tests.support.factories import ProjectFactory, UploadFactory, make_key
from tests.support.invoices import make_billing_rows
from tests.support.jobs import make_job
from tests.support.story import Api, Person, Story, api_client, make_person
from tests.support.webhooks import make_delivery

TOKEN = "token-of-an-invitation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """The callers of the matrix; the people are members of Alice's lab but for the stranger."""

    owner: Person
    researcher: Person
    viewer: Person
    billing: Person
    stranger: Person

    def person(self, role: str) -> Person:
        return getattr(self, role)

    def keyed(self, **fields: Any) -> Api:
        """A key of the owner with these restrictions."""
        return api_client(make_key(self.owner.tenant, Role.OWNER, self.owner.user, **fields)[1])

    def wrong_scope(self, wanted: Permission | None) -> Api:
        """A key that may do one thing, and that is not the wanted one."""
        other = Permission.RUNTIME_READ if wanted != Permission.RUNTIME_READ else Permission.JOBS_READ
        return self.keyed(scopes=[other])


def cast_of(story: Story) -> Cast:
    return Cast(
        owner=story.alice,
        researcher=story.bob,
        viewer=story.viewer,
        billing=make_person("bill", story.alice.tenant, Role.BILLING),
        stranger=story.charlie,
    )


@contextmanager
def undone() -> Iterator[None]:
    """What happens inside did not happen: each caller finds the same rows."""
    with transaction.atomic():
        try:
            yield
        finally:
            transaction.set_rollback(True)


def rows_of(story: Story) -> dict[str, str]:
    """Ids of Alice's rows by the name of the URL parameter."""
    alice = story.alice
    job = make_job(alice)
    delivery = make_delivery(alice)
    invoice, budget = make_billing_rows(alice)
    with platform_scope():
        member = Membership.objects.get(user=story.bob.user, tenant=alice.tenant)
        invitation = Invitation.objects.create(
            tenant=alice.tenant, email="dora@example.org", role="viewer", token_sha256=token_sha256(TOKEN),
            expires_at=timezone.now() + timezone.timedelta(days=1),
        )  # fmt: skip
        artifact = Artifact.objects.create(
            tenant=alice.tenant, job=job, attempt=1, runtime_key="a-1", kind="evaluation", name="report",
            policy_version=1, size_bytes=1, sha256="0" * 64, manifest={}, created_at=timezone.now(),
        )  # fmt: skip
        policy = Artifact.objects.create(
            tenant=alice.tenant, job=job, attempt=1, runtime_key="p-1", kind="adapter", name="policy",
            policy_version=1, size_bytes=1, sha256="1" * 64, manifest={}, created_at=timezone.now(),
        )  # fmt: skip
    version = job.dataset_version
    return {
        "artifact_id": str(artifact.pk),
        "budget_id": str(budget.pk),
        "dataset_id": str(version.dataset_id),
        "delivery_id": str(delivery.pk),
        "invitation_id": str(invitation.pk),
        "invoice_id": str(invoice.pk),
        "job_id": str(job.pk),
        "key_id": str(story.bob.key_row.pk),
        "member_id": str(member.pk),
        "policy_id": str(policy.pk),
        "project_id": str(ProjectFactory(tenant=alice.tenant, slug="grasping").pk),
        "token": TOKEN,
        "upload_id": str(UploadFactory(tenant=alice.tenant).pk),
        "version_id": str(version.pk),
        "webhook_id": str(delivery.endpoint_id),
        **PARTS,
        "number": str(version.number),
    }


# Parameters that name a part of a row rather than a row.
PARTS = {"camera": "observation.images.base", "episode": "0", "number": "1", "resource": "running_jobs"}


def missing(ids: dict[str, str]) -> dict[str, str]:
    """Ids of the same form and length that name nothing; parts stay."""

    def other(value: str) -> str:
        return "9" * len(value) if value.isdigit() else str(uuid.uuid4()) if len(value) == 36 else "x" * len(value)

    return {name: value if name in PARTS else other(value) for name, value in ids.items()}
