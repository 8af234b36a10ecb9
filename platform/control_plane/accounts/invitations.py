"""The page an invitation's link leads to: join with the account one has, or make one. There is no other sign-up."""

from allauth.account.utils import perform_login
from allauth.core.internal import ratelimit
from django import forms
from django.contrib.auth.password_validation import validate_password
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from control_plane.middleware import SESSION_TENANT
from tenants.errors import ApplicationError
from tenants.models import Invitation, User
from tenants.selectors import invitation_by_token
from tenants.services import invitation_accept, invitation_sign_up
from tenants.services.invitations import gone, token_sha256


class SignUpForm(forms.Form):
    """A password; the address is the invitation's."""

    password = forms.CharField(
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "class": "input"}), max_length=256
    )

    def __init__(self, *args: object, invitation: Invitation, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.invitation = invitation

    def clean_password(self) -> str:
        """Raises ValidationError by `AUTH_PASSWORD_VALIDATORS`."""
        password = str(self.cleaned_data["password"])
        validate_password(password, User(email=self.invitation.email))
        return password


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def accept_invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Show what is offered; POST accepts it. An unknown, used or old token is told nothing but that."""
    invitation = invitation_by_token(token_sha256(token))
    if invitation is None:
        return _refused(request, gone())
    try:
        if isinstance(request.user, User):
            return _as_member(request, request.user, invitation)
        return _as_stranger(request, invitation)
    except ApplicationError as error:
        return _refused(request, error)


def _as_member(request: HttpRequest, user: User, invitation: Invitation) -> HttpResponse:
    """For whoever is logged in. Raises ApplicationError for another address and for members."""
    fits = user.email.lower() == invitation.email
    if request.method == "POST":
        invitation_accept(invitation=invitation, user=user)
        return _joined(request, invitation)
    context = {"invitation": invitation, "fits": fits}
    return render(request, "invitations/join.html", context, status=200 if fits else 403)


def _as_stranger(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    """For whoever is not: log in if the address has an account, else sign up."""
    if User.objects.filter(email=invitation.email).exists():
        return render(request, "invitations/log_in.html", {"invitation": invitation})
    form = SignUpForm(request.POST if request.method == "POST" else None, invitation=invitation)
    if request.method == "POST":
        limited = ratelimit.consume_or_429(request, app="allauth.account", action="signup")
        if limited:
            return limited
        if form.is_valid():
            user = invitation_sign_up(invitation=invitation, password=form.cleaned_data["password"])
            perform_login(request, user, email_verification="none")
            return _joined(request, invitation)
    return render(request, "invitations/sign_up.html", {"invitation": invitation, "form": form})


def _joined(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    request.session[SESSION_TENANT] = str(invitation.tenant_id)
    return HttpResponseRedirect("/")


def _refused(request: HttpRequest, error: ApplicationError) -> HttpResponse:
    return render(request, "invitations/refused.html", {"error": error}, status=error.status)
