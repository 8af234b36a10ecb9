"""What every list of the operators' admin has in common: all tenants, no writes, few queries."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.text import capfirst

from tenants.scope import platform_scope


def _rendered(answer: HttpResponse) -> HttpResponse:
    """Templates read rows while they are rendered: do it inside the scope."""
    return answer.render() if isinstance(answer, TemplateResponse) else answer


class AcrossTenants(admin.ModelAdmin):
    """Opens the platform's scope for the whole request, whatever tenant the operator belongs to."""

    list_per_page = 50
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False  # counting a big table twice is slow

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        with platform_scope():
            return super().get_queryset(request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        with platform_scope():
            title = {"title": capfirst(str(self.model._meta.verbose_name_plural))}
            return _rendered(super().changelist_view(request, title | (extra_context or {})))

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        with platform_scope():
            return _rendered(super().changeform_view(request, *args, **kwargs))


class WhyForm(forms.ModelForm):  # type: ignore[type-arg]  # of any model
    """Every change says why, for the audit log."""

    reason = forms.CharField(
        max_length=500, help_text="Kept in the audit log.", widget=forms.TextInput(attrs={"class": "vTextField"})
    )


class AsksWhy(AcrossTenants):
    """Rows that can be changed; the reason is asked for whoever may."""

    form = WhyForm

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        may = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        return [*(self.fields or ()), *(["reason"] if may else [])]

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Our own log has it."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Our own log has it."""


class ReadOnly(AcrossTenants):
    """Nothing can be added, changed or deleted here, by nobody: acts are screens and actions that call services."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class RowsInside(admin.TabularInline):
    """Rows on their parent's page, shown only."""

    extra = 0
    can_delete = False
    show_change_link = False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class Typed(admin.SimpleListFilter):
    """A filter that is typed, not picked: a list of every tenant or actor would be a page of its own."""

    template = "operator/typed_filter.html"
    lookup: str  # the rows' field

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("", "")]  # without any, Django leaves the filter out

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        return queryset.filter(**{self.lookup: self.value()}) if self.value() else queryset

    def choices(self, changelist: Any) -> Any:
        """One choice: what else the address asks for, which the form must keep."""
        others = [pair for pair in changelist.params.items() if pair[0] != self.parameter_name]
        yield {"name": self.parameter_name, "value": self.value() or "", "others": others}


class OfTenant(Typed):
    """By the short name in a tenant's address."""

    title = "tenant (slug)"
    parameter_name = "tenant_slug"
    lookup = "tenant__slug"
