"""Operators' view of tenants, people and keys: read-mostly, every tenant at once."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from tenants.models import ApiKey, Membership, Tenant, User
from tenants.scope import platform_scope


def _rendered(answer: HttpResponse) -> HttpResponse:
    """Templates read rows while they are rendered: do it inside the scope."""
    return answer.render() if isinstance(answer, TemplateResponse) else answer


class AcrossTenants(admin.ModelAdmin):
    """Opens the platform's scope for the whole request, whatever tenant the operator belongs to."""

    def get_queryset(self, request: HttpRequest) -> Any:
        with platform_scope():
            return super().get_queryset(request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        with platform_scope():
            return _rendered(super().changelist_view(request, extra_context))

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        with platform_scope():
            return _rendered(super().changeform_view(request, *args, **kwargs))


class ReadOnly(AcrossTenants):
    """Nothing can be added, changed or deleted here."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Tenant)
class TenantAdmin(AcrossTenants):
    list_display = ["name", "slug", "weight", "created_at"]
    search_fields = ["name", "slug"]
    readonly_fields = ["id", "created_at"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(User)
class UserAdmin(AcrossTenants):
    list_display = ["email", "is_active", "is_staff", "date_joined", "last_login"]
    list_filter = ["is_active", "is_staff"]
    search_fields = ["email"]
    fields = ["email", "is_active", "is_staff", "is_superuser", "date_joined", "last_login"]
    readonly_fields = ["email", "date_joined", "last_login"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Membership)
class MembershipAdmin(ReadOnly):
    list_display = ["tenant", "user", "role", "created_at"]
    list_filter = ["role"]
    list_select_related = ["tenant", "user"]
    search_fields = ["tenant__name", "user__email"]


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnly):
    list_display = ["prefix", "tenant", "name", "role", "created_by", "last_used_at", "expires_at", "revoked_at"]
    list_select_related = ["tenant", "created_by"]
    search_fields = ["prefix", "name", "tenant__name"]
    exclude = ["secret_sha256"]
