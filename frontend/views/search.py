"""The search of the top bar, and the page it is on where there is no room or no script."""

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from frontend.search import query_of, search
from frontend.views.page import answer, frame, page, wants_part
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_safe
@page(Permission.JOBS_READ)
def search_page(request: PageRequest) -> HttpResponse:
    """Hits for ``q``, a few of each kind."""
    query = query_of(request.GET.get("q"))
    context = {"query": query, "found": search(request.actor, query)}
    if not wants_part(request):
        context |= frame(request, "search")
    return answer(request, "console/search/page.html", "console/search/hits.html", context)
