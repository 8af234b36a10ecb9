"""What every form of the settings does: act, tell it and go back, or show the refusal beside the form."""

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from frontend.refusals import Refusal, refusal_of
from tenants.errors import ApplicationError
from tenants.requests import PageRequest

Show = Callable[[Refusal, int], HttpResponse]
"""The section's page with a refusal on it, answered with that status."""


def acted(request: PageRequest, act: Callable[[], object], *, said: str, back: str, show: Show) -> HttpResponse:
    """``back``: name of the page to go to. A row that is missing, or another tenant's, stays a missing page."""
    try:
        act()
    except ApplicationError as error:
        if error.status == 404:
            raise
        return show(refusal_of(error), error.status)
    messages.success(request, said)
    return redirect(back)


def no_store(response: HttpResponse) -> HttpResponse:
    """Of an answer with a secret that is shown once."""
    response["Cache-Control"] = "no-store"
    return response
