"""Acts: what an operator may do on a screen. Each is a form, a permission, and one call of a service."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest

from control_plane.operator.screens import operator_of, refused, require
from tenants.errors import ApplicationError
from tenants.models import User


class ActForm(forms.Form):
    """A form about one row, its ``subject``."""

    def __init__(self, *args: Any, subject: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.subject = subject


def _always(subject: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """``do`` returns what happened, in words; ApplicationError is shown at the form. ``offered``: not moot."""

    name: str
    title: str
    permission: str
    form: type[ActForm]
    do: Callable[[User, Any, dict[str, Any]], str]
    button: str
    offered: Callable[[Any], bool] = _always


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An act with its form, fresh or as it was sent."""

    act: Act
    form: ActForm


Acts = Mapping[str, Act]


def acts_by_name(*acts: Act) -> dict[str, Act]:
    return {act.name: act for act in acts}


def sent_act(request: HttpRequest, acts: Acts, subject: Any) -> Offer | None:
    """The act that was sent to the screen, if one was. Raises Http404 or PermissionDenied."""
    if request.method != "POST":
        return None
    act = acts.get(request.POST.get("act", ""))
    if act is None:
        raise Http404
    require(request, act.permission)
    return Offer(act=act, form=act.form(request.POST, prefix=act.name, subject=subject))


def is_done(request: HttpRequest, sent: Offer) -> bool:
    """Do it and say so; False, with the reason at the form, if it was refused."""
    if not sent.form.is_valid():
        return False
    try:
        messages.success(request, sent.act.do(operator_of(request), sent.form.subject, sent.form.cleaned_data))
    except ApplicationError as error:
        sent.form.add_error(None, refused(error))
        return False
    return True


def offers(request: HttpRequest, acts: Acts, subject: Any, sent: Offer | None) -> list[Offer]:
    """What this operator may do now; the form that was refused comes back as it was sent."""
    found = []
    for act in acts.values():
        if sent is not None and sent.act is act:
            found.append(sent)
        elif act.offered(subject) and request.user.has_perm(act.permission):
            found.append(Offer(act=act, form=act.form(prefix=act.name, subject=subject)))
    return found
