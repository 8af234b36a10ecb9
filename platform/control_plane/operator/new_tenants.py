"""A new tenant, and an owner for one that has none: the person gets a letter with a link to accept."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse

from control_plane.operator.screens import framed, operator_of, refused, screen
from tenants.billing.prices.first_plan import first_plans
from tenants.errors import ApplicationError
from tenants.models import DEFAULT_CURRENCY, Tenant
from tenants.services import owner_invite, tenant_open

ADD, INVITE = "tenants.add_tenant", "tenants.add_invitation"


class OwnerForm(forms.Form):
    """Who is to own a tenant, and why."""

    email = forms.EmailField(
        label="Owner's e-mail", max_length=254, help_text="Who has no account yet gets one by the invitation's link."
    )
    reason = forms.CharField(max_length=500)


class TenantForm(OwnerForm):
    """A new tenant. Its currency stays: it is that of every invoice to come."""

    field_order = ("name", "email", "currency", "reason")
    name = forms.CharField(max_length=200)
    currency = forms.ChoiceField(
        initial=DEFAULT_CURRENCY, help_text="For good. To choose: those of plans with a price of every meter."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(currency, f"{currency}, plan {first.plan.name}") for currency, first in first_plans().items()]
        self.fields["currency"].choices = sorted(choices)  # type: ignore[attr-defined]


@screen(ADD)
def new_tenant_page(request: HttpRequest) -> HttpResponse:
    """Make one; done, it leads to the tenant's screen."""
    form = TenantForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            tenant, issued = tenant_open(by=operator_of(request), link=_link_of(request), **form.cleaned_data)
        except ApplicationError as error:
            form.add_error(None, refused(error))
        else:
            became = "was invited to own it" if issued else "owns it"
            messages.success(request, f"{tenant.name} is there; {form.cleaned_data['email']} {became}.")
            return HttpResponseRedirect(reverse("admin:operator_tenant", args=[tenant.pk]))
    return framed(request, "new_tenant.html", "New tenant", form=form, button="Make the tenant")


@screen(INVITE)
def owner_page(request: HttpRequest, tenant_id: UUID) -> HttpResponse:
    """Invite somebody to own a tenant: where the first invitation ran out, or the only owner is gone."""
    tenant = get_object_or_404(Tenant, pk=tenant_id)
    form = OwnerForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        email = form.cleaned_data["email"]
        try:
            owner_invite(by=operator_of(request), tenant=tenant, link=_link_of(request), **form.cleaned_data)
        except ApplicationError as error:
            form.add_error(None, refused(error))
        else:
            messages.success(request, f"{email} was invited to own {tenant.name}.")
            return HttpResponseRedirect(reverse("admin:operator_tenant", args=[tenant.pk]))
    return framed(
        request,
        "new_tenant.html",
        f"{tenant.name}: invite an owner",
        tenant=tenant,
        form=form,
        button="Send the invitation",
    )


def _link_of(request: HttpRequest) -> Callable[[str], str]:
    """What makes a token the address in the letter."""
    return lambda token: request.build_absolute_uri(reverse("invitation_accept", args=[token]))
