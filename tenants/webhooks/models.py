"""Who wants to be told, of what, and how the telling went."""

import uuid

from django.db import models

from tenants.scope import TenantOwned


class WebhookEndpoint(TenantOwned):  # type: ignore[django-manager-missing]
    """An address of a tenant that is told about its events, signed (Standard Webhooks)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    url = models.URLField(max_length=500)
    events = models.JSONField(default=list)  # event types; empty: all
    secret = models.CharField(max_length=500)  # encrypted: it is needed in the clear to sign
    former_secret = models.CharField(max_length=500, blank=True)  # signs too until ``former_until``
    former_until = models.DateTimeField(null=True)
    created_by = models.ForeignKey("tenants.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    failing_since = models.DateTimeField(null=True)
    disabled_at = models.DateTimeField(null=True)  # by its tenant, or after five days of failures
    disabled_reason = models.CharField(max_length=200, blank=True)

    def __str__(self) -> str:
        return self.url


class WebhookEvent(TenantOwned):  # type: ignore[django-manager-missing]
    """Something that happened, written in the transaction that made it happen."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    type = models.CharField(max_length=60)
    data = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)


class DeliveryState(models.TextChoices):
    """How far one event is on its way to one endpoint."""

    WAITING = "waiting"  # for its (next) try
    DELIVERED = "delivered"  # the endpoint answered 2xx
    FAILED = "failed"  # given up after the last try; can be sent again by hand


class WebhookDelivery(TenantOwned):  # type: ignore[django-manager-missing]
    """One event to one endpoint, with the outcome of its newest try."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    event = models.ForeignKey(WebhookEvent, on_delete=models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=20, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True)
    claimed_until = models.DateTimeField(null=True)  # lease of the worker that sends it
    response_status = models.PositiveSmallIntegerField(null=True)
    error = models.CharField(max_length=300, blank=True)
    duration_ms = models.PositiveIntegerField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        constraints = [models.UniqueConstraint(fields=["endpoint", "event"], name="one_delivery_per_endpoint")]
        indexes = [models.Index(fields=["state", "next_try_at"], name="deliveries_due")]
