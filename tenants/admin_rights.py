"""The form of a group of operators: rights to tick, of what this admin shows and does."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.db.models import Q
from django.forms.models import ModelChoiceIterator
from django.utils.text import capfirst

from tenants.admin_base import WhyForm

_SUPERUSERS_ONLY = ("user", "group")  # whoever could change these could make themselves a superuser


class _ByKind(ModelChoiceIterator):  # type: ignore[type-arg]
    """Choices under the name of what they are about."""

    def __iter__(self) -> Iterator[Any]:
        for kind, rights in groupby(self.queryset, key=lambda right: right.content_type):
            yield kind.name.capitalize(), [self.choice(right) for right in rights]


class RightsField(forms.ModelMultipleChoiceField):
    """Rights as boxes to tick, in one query."""

    widget = forms.CheckboxSelectMultiple
    iterator = _ByKind

    def label_from_instance(self, obj: Any) -> str:
        return capfirst(str(obj.name).removeprefix("Can "))


class GroupForm(WhyForm):
    """A group of operators."""

    permissions = RightsField(queryset=Permission.objects.none(), required=False, label="Rights")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["permissions"]
        field.queryset = rights_offered()


def rights_offered() -> Any:
    """To view what is listed, and to add and change; nothing is ever deleted, and only superusers make operators."""
    listed = Q()
    for model in admin.site._registry:
        listed |= Q(content_type__app_label=model._meta.app_label, content_type__model=model._meta.model_name)
    acts = Q(codename__startswith="delete_") | Q(
        codename__regex=r"^(add|change)_", content_type__model__in=_SUPERUSERS_ONLY
    )
    rows = Permission.objects.filter(listed).exclude(acts).select_related("content_type")
    return rows.order_by("content_type__app_label", "content_type__model", "codename")
