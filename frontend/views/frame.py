"""What is around every page, read anew: counts, the month's money, the runtime's health."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.shell import shell_of
from frontend.views.page import page
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_safe
@page(Permission.JOBS_READ)
def shell_part(request: PageRequest) -> HttpResponse:
    """For the script that keeps the frame fresh."""
    may = {"billing_read": request.actor.may(Permission.BILLING_READ)}
    context = {"shell": shell_of(request.actor), "may": may, "tenant": request.tenant}
    return render(request, "console/frame/fresh.html", context)
