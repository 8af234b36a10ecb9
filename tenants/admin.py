"""Operators' lists of tenants, people, projects and keys: every tenant at once."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html

from tenants.access_changes import access_changed
from tenants.admin_base import AsksWhy, OfTenant, ReadOnly
from tenants.admin_rights import GroupForm
from tenants.audit.services import audit
from tenants.models import ApiKey, Invitation, Membership, Project, Tenant, User


class Audited(AsksWhy):
    """Existing rows can be changed, none added or deleted. Each change is an act on the audit log."""

    noun: str

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: "ModelForm[Any]", change: bool) -> None:
        """In the transaction that Django opens for the form."""
        changed = [name for name in form.changed_data if name != "reason"]
        if not changed:
            return
        before = {name: _plain(form.initial.get(name)) for name in changed} if change else None
        super().save_model(request, obj, form, change)
        audit(
            by=_operator(request),
            verb=f"{self.noun}.{'changed' if change else 'created'}",
            target=obj,
            tenant=obj if isinstance(obj, Tenant) else None,
            before=before,
            after={name: _plain(form.cleaned_data[name]) for name in changed},
            reason=form.cleaned_data["reason"],
        )


def _plain(value: Any) -> Any:
    """As JSON: rows chosen in a form are told by their names."""
    return sorted(map(str, value)) if isinstance(value, list | QuerySet) else value


def _operator(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # the site lets nobody else in
    return request.user


@admin.register(Tenant)
class TenantAdmin(Audited):
    """The name leads to the tenant's own screen; here its share of a contended device can be changed.

    New ones are made on a screen of their own, which invites the owner.
    """

    noun = "tenant"
    list_display = ["screen", "slug", "state", "currency", "weight", "created_at"]
    list_display_links = ["slug"]
    list_filter = ["state", "currency"]
    search_fields = ["name", "slug", "=id"]
    ordering = ["name"]
    fields = ["id", "name", "slug", "weight", "state", "paused_reason", "currency", "created_at"]
    readonly_fields = ["id", "slug", "state", "paused_reason", "currency", "created_at"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("tenants.add_tenant"))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:operator_new_tenant"))

    @admin.display(description="Name", ordering="name")
    def screen(self, tenant: Tenant) -> str:
        return format_html('<a href="{}">{}</a>', reverse("admin:operator_tenant", args=[tenant.pk]), tenant.name)


@admin.register(User)
class UserAdmin(Audited):
    noun = "user"
    list_display = ["email", "is_active", "is_staff", "is_superuser", "date_joined", "last_login"]
    list_filter = ["is_active", "is_staff", "is_superuser"]
    search_fields = ["email"]
    ordering = ["email"]
    fields = ["email", "is_active", "is_staff", "is_superuser", "groups", "date_joined", "last_login"]
    readonly_fields = ["email", "date_joined", "last_login"]

    def save_model(self, request: HttpRequest, obj: User, form: "ModelForm[User]", change: bool) -> None:
        """Whoever's account is closed is cut off at once."""
        super().save_model(request, obj, form, change)
        access_changed([obj.pk])

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who is staff is for superusers to say: otherwise anybody could make themselves one."""
        return bool(request.user.is_superuser and super().has_change_permission(request, obj))

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Groups to tick: there are few."""
        return super().formfield_for_manytomany(db_field, request, widget=forms.CheckboxSelectMultiple, **kwargs)


@admin.register(Group)
class GroupAdmin(Audited):
    """What operators of one kind may do: rights to look (view) and to act (add, change)."""

    form = GroupForm
    noun = "group"
    fields = ["name", "permissions"]
    list_display = ["name"]
    search_fields = ["name"]
    ordering = ["name"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(Membership)
class MembershipAdmin(ReadOnly):
    list_display = ["tenant", "user", "role", "created_at"]
    list_filter = ["role", OfTenant]
    list_select_related = ["tenant", "user"]
    search_fields = ["tenant__name", "user__email"]
    ordering = ["-pk"]


@admin.register(Invitation)
class InvitationAdmin(ReadOnly):
    list_display = ["email", "tenant", "role", "invited_by", "created_at", "expires_at", "accepted_at", "revoked_at"]
    list_filter = ["role", OfTenant]
    list_select_related = ["tenant", "invited_by"]
    search_fields = ["email", "tenant__name"]
    ordering = ["-created_at"]
    exclude = ["token_sha256"]


@admin.register(Project)
class ProjectAdmin(ReadOnly):
    list_display = ["name", "slug", "tenant", "created_by", "created_at", "archived_at"]
    list_filter = [("archived_at", admin.EmptyFieldListFilter), OfTenant]
    list_select_related = ["tenant", "created_by"]
    search_fields = ["name", "slug", "tenant__name"]
    ordering = ["-created_at"]


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnly):
    list_display = [
        "prefix",
        "tenant",
        "name",
        "role",
        "project",
        "spend_cap",
        "created_by",
        "last_used_at",
        "expires_at",
        "revoked_at",
    ]
    list_filter = ["role", ("revoked_at", admin.EmptyFieldListFilter), OfTenant]
    list_select_related = ["tenant", "project", "created_by"]
    search_fields = ["prefix", "name", "tenant__name"]
    ordering = ["-created_at"]
    exclude = ["secret_sha256"]
