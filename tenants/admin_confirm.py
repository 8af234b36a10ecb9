"""Actions on chosen rows that ask first: a page with how many, which and why, then the service, row by row."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from tenants.errors import ApplicationError
from tenants.models import User

MOST_ROWS = 200  # at once: each is a transaction of its own
ROWS_SHOWN = 20


class WhyForm(forms.Form):
    """The reason that the audit log keeps."""

    reason = forms.CharField(max_length=500, help_text="Kept in the audit log, which the tenant can read.")


def confirm_then(
    screen: "admin.ModelAdmin[Any]",
    request: HttpRequest,
    chosen: "QuerySet[Any]",
    *,
    action: str,
    question: str,
    button: str,
    act: Callable[[User, Any, str], object],
    label: Callable[[Any], str] = str,
) -> HttpResponse | None:
    """Ask, and once ``confirmed`` comes back, ``act(operator, row, reason)`` for each; refusals are told one by one.

    None: done, back to the list. Nothing happens before the confirmation, or without a reason.
    """
    if not isinstance(request.user, User):
        raise PermissionDenied
    count = chosen.count()
    if count > MOST_ROWS:
        messages.error(request, f"{count} rows are chosen; at most {MOST_ROWS} at once.")
        return None
    rows = list(chosen)
    form = WhyForm(request.POST if request.POST.get("confirmed") == "yes" else None)
    if not form.is_valid():
        labels = [label(row) for row in rows]
        return _question(screen, request, rows, labels, form=form, action=action, question=question, button=button)
    refused: list[str] = []
    for row in rows:
        try:
            act(request.user, row, form.cleaned_data["reason"])
        except ApplicationError as error:
            refused.append(f"{label(row)}: {error.detail}")
    if len(rows) > len(refused):
        messages.success(request, f"{button}: {len(rows) - len(refused)} of {len(rows)}.")
    for text in refused[:ROWS_SHOWN]:
        messages.error(request, text)
    return None


def _question(
    screen: "admin.ModelAdmin[Any]", request: HttpRequest, rows: list[Any], labels: list[str], **context: Any
) -> TemplateResponse:
    frame = screen.admin_site.each_context(request)
    more = {"title": "Are you sure?", "opts": screen.model._meta, "count": len(rows)}
    shown = {"labels": labels[:ROWS_SHOWN], "unshown": len(labels[ROWS_SHOWN:])}
    keys = {"keys": [row.pk for row in rows], "checkbox": ACTION_CHECKBOX_NAME}
    return TemplateResponse(request, "operator/confirm.html", frame | more | shown | keys | context)
