"""One tenant on one screen: money, limits, jobs, people, what was done; and what an operator may do."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404

from control_plane.operator.screens import framed, operator_of, refused, require, screen
from control_plane.operator.tenant_acts import ACTS, Act, TenantForm
from control_plane.operator.tenant_facts import tenant_facts
from tenants.errors import ApplicationError
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An act with its form, fresh or as it was sent."""

    act: Act
    form: TenantForm


@screen("tenants.view_tenant")
def tenant_page(request: HttpRequest, tenant_id: UUID) -> HttpResponse:
    """The form of an act is sent to the page itself, as ``act``; done, it leads back to it."""
    tenant = get_object_or_404(Tenant, pk=tenant_id)
    sent = _sent(request, tenant)
    if sent is not None and _done(request, tenant, sent):
        return HttpResponseRedirect(request.path)
    answer = framed(
        request,
        "tenant.html",
        tenant.name,
        tenant=tenant,
        facts=tenant_facts(tenant),
        offers=_offers(request, tenant, sent),
        sent=sent.act.name if sent else "",
    )
    answer.status_code = 422 if sent else 200
    return answer


def _sent(request: HttpRequest, tenant: Tenant) -> Offer | None:
    if request.method != "POST":
        return None
    act = ACTS.get(request.POST.get("act", ""))
    if act is None:
        raise Http404
    require(request, act.permission)
    return Offer(act=act, form=act.form(request.POST, prefix=act.name, tenant=tenant))


def _done(request: HttpRequest, tenant: Tenant, sent: Offer) -> bool:
    if not sent.form.is_valid():
        return False
    try:
        messages.success(request, sent.act.do(operator_of(request), tenant, sent.form.cleaned_data))
    except ApplicationError as error:
        sent.form.add_error(None, refused(error))
        return False
    return True


def _offers(request: HttpRequest, tenant: Tenant, sent: Offer | None) -> list[Offer]:
    """What this operator may do now; the form that was refused comes back as it was sent."""
    offers = []
    for act in ACTS.values():
        if sent is not None and sent.act is act:
            offers.append(sent)
        elif act.offered(tenant) and request.user.has_perm(act.permission):
            offers.append(Offer(act=act, form=act.form(prefix=act.name, tenant=tenant)))
    return offers
