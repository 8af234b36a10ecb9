"""Who did what, when and from where. Append-only; a tenant reads its own."""

from typing import ClassVar, Self

from django.db import models
from django_scopes import ScopedManager

from tenants.append_only import AppendOnly


class ActorKind(models.TextChoices):
    """Who acted."""

    USER = "user"  # a member, logged in
    KEY = "key"  # an API key of the tenant
    OPERATOR = "operator"  # staff of the platform, through the admin
    SYSTEM = "system"  # the platform by itself: a cap reached, a retention that ran out


class AuditEvent(AppendOnly):
    """One act. ``tenant`` is null for acts on the platform as a whole, which no tenant reads."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, null=True, related_name="+")
    occurred_at = models.DateTimeField(auto_now_add=True)
    actor_kind = models.CharField(max_length=20, choices=ActorKind.choices)
    actor_id = models.CharField(max_length=64, blank=True)  # of the user or the key
    actor_name = models.CharField(max_length=254, blank=True)  # e-mail address, or the key's name and prefix
    verb = models.CharField(max_length=60)  # noun.past_tense, e.g. "member.removed"
    object_type = models.CharField(max_length=60)
    object_id = models.CharField(max_length=64)
    object_name = models.CharField(max_length=200, blank=True)
    before = models.JSONField(null=True)  # changed fields only
    after = models.JSONField(null=True)
    reason = models.CharField(max_length=500, blank=True)
    address = models.GenericIPAddressField(null=True)
    request_id = models.CharField(max_length=64, blank=True)

    objects: ClassVar[models.Manager[Self]] = ScopedManager(tenant="tenant")

    class Meta:
        indexes = [models.Index(fields=["tenant", "-occurred_at"], name="audit_by_tenant")]
