"""Operators' search of the audit log: who did what to what, when, for whom."""

import json

from django.contrib import admin
from django.utils.html import format_html

from tenants.admin_base import OfTenant, ReadOnly, Typed
from tenants.audit.models import AuditEvent


class ByActor(Typed):
    title = "actor (part of the name)"
    parameter_name = "actor"
    lookup = "actor_name__icontains"


class OfObject(Typed):
    title = "object (id)"
    parameter_name = "object"
    lookup = "object_id"


class ByVerb(Typed):
    title = "verb (how it begins)"
    parameter_name = "verb_begins"
    lookup = "verb__startswith"


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnly):
    list_display = [
        "occurred_at",
        "verb",
        "actor_name",
        "actor_kind",
        "tenant",
        "object_name",
        "reason",
        "changed",
        "address",
    ]
    list_filter = [OfTenant, ByActor, ByVerb, OfObject, "actor_kind", "occurred_at"]
    list_select_related = ["tenant"]
    search_fields = ["object_name", "reason", "actor_name", "verb", "=object_id", "=request_id"]
    ordering = ["-pk"]  # as they came; the key is the index

    @admin.display(description="Change")
    def changed(self, event: AuditEvent) -> str:
        before, after = event.before or {}, event.after or {}
        parts = [f"{name}: {_told(before.get(name))} → {_told(after.get(name))}" for name in {**before, **after}]
        return format_html('<span class="mono">{}</span>', "; ".join(parts)[:300])


def _told(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)
