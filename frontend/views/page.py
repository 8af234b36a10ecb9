"""What every page needs: a logged-in member with the right permission, and the frame around the content."""

import time
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.utils import timezone

from jobs.selectors.jobs import job_list
from jobs.states import LIVE
from tenants.billing.usage.selectors import Cost, tenant_cost
from tenants.errors import ApplicationError
from tenants.identity import memberships_of
from tenants.models import Tenant
from tenants.permissions import Permission
from tenants.requests import PageRequest

SPEND_AGE_S = 15

View = Callable[..., HttpResponse]


def page(permission: Permission) -> Callable[[View], View]:
    """Ask for a log-in, then for ``permission`` in the open tenant; a foreign row is a missing page."""

    def decorate(view: View) -> View:
        @login_required
        @wraps(view)
        def guarded(request: PageRequest, **arguments: Any) -> HttpResponse:
            if request.actor is None or not request.actor.may(permission):
                raise PermissionDenied
            try:
                return view(request, **arguments)
            except ApplicationError as error:
                if error.status == 404:
                    raise Http404(error.detail) from error
                raise

        return guarded

    return decorate


def frame(request: PageRequest, name: str) -> dict[str, Any]:
    """Context of the top bar and the navigation."""
    return {
        "page": name,
        "tenant": request.tenant,
        "role": request.actor.role,
        "memberships": memberships_of(request.user),
        "live_jobs": job_list(request.tenant).filter(state__in=LIVE).count(),
        "spend": _spend(request.tenant),
    }


def _spend(tenant: Tenant) -> Cost:
    """This month's cost, at most a quarter of a minute old: pages refresh often, and the sum is over all usage."""
    month = timezone.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return _spend_once(tenant, month, int(time.monotonic()) // SPEND_AGE_S)


@lru_cache(maxsize=1024)
def _spend_once(tenant: Tenant, month: datetime, period: int) -> Cost:
    """``period`` only makes the answer age."""
    return tenant_cost(tenant, since=month)
