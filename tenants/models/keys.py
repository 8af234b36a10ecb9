"""Machines' credentials, and the first answers to their requests."""

import uuid

from django.db import models

from tenants.billing.money import MoneyField
from tenants.models.people import Role
from tenants.scope import TenantOwned


class ApiKey(TenantOwned):
    """A machine's credential: `jnx_<prefix>_<secret>`; only the prefix and the SHA-256 of the secret are kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    role = models.CharField(max_length=20, choices=Role.choices, default=Role.RESEARCHER)
    scopes = models.JSONField(default=list)  # permissions it is narrowed to; empty: all of its role's
    project = models.ForeignKey("tenants.Project", on_delete=models.PROTECT, null=True, related_name="keys")
    spend_cap = MoneyField(null=True)  # type: ignore[misc]  # what its jobs may cost in all; null: no cap of its own
    prefix = models.CharField(max_length=16, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)


class IdempotencyRecord(TenantOwned):
    """The first answer to an `Idempotency-Key`, replayed for 24 hours."""

    key = models.CharField(max_length=200)
    route = models.CharField(max_length=200)  # method and path
    body_sha256 = models.CharField(max_length=64)
    claim = models.UUIDField(default=uuid.uuid4)  # of the request that answers; its effects commit only with it
    status = models.PositiveSmallIntegerField()  # of the answer; 0 while the request is under way
    response = models.JSONField(null=True)
    location = models.CharField(max_length=300, blank=True)  # the Location header of the answer
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "key", "route"], name="one_answer_per_key")]
