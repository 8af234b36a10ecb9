"""One tenant on one screen: money, limits, jobs, people, what was done; and what an operator may do."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404

from control_plane.operator.acts import is_done, offers, sent_act
from control_plane.operator.screens import framed, screen
from control_plane.operator.tenant_acts import ACTS
from control_plane.operator.tenant_facts import tenant_facts
from tenants.models import Tenant


@screen("tenants.view_tenant")
def tenant_page(request: HttpRequest, tenant_id: UUID) -> HttpResponse:
    """The form of an act is sent to the page itself, as ``act``; done, it leads back to it."""
    tenant = get_object_or_404(Tenant, pk=tenant_id)
    sent = sent_act(request, ACTS, tenant)
    if sent is not None and is_done(request, sent):
        return HttpResponseRedirect(request.path)
    return framed(
        request,
        "tenant.html",
        tenant.name,
        tenant=tenant,
        facts=tenant_facts(tenant),
        offers=offers(request, ACTS, tenant, sent),
        sent=sent.act.name if sent else "",
    )
