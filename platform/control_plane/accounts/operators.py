"""Who may enter the admin: staff, with a second factor where the installation asks for one."""

from allauth.account.authentication import get_authentication_records
from allauth.account.decorators import secure_admin_login
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from tenants.models import User


def operator_allowed(request: HttpRequest) -> bool:
    """Active staff; with `JOYNEXUS_OPERATOR_MFA` only sessions in which a second factor was shown."""
    user = request.user
    return isinstance(user, User) and user.is_active and user.is_staff and _is_proved(request, user)


def operator_login(request: HttpRequest) -> HttpResponse:
    """In the place of the admin's own log-in, which would know no second factor and no limits."""
    if isinstance(request.user, User) and request.user.is_staff and _lacks_factor(request.user):
        return HttpResponseRedirect(reverse("mfa_activate_totp"))
    if isinstance(request.user, User) and request.user.is_staff and not _is_proved(request, request.user):
        return HttpResponseRedirect(f"{reverse('mfa_reauthenticate')}?next={reverse('admin:index')}")
    if operator_allowed(request):
        return HttpResponseRedirect(reverse("admin:index"))
    return _as_everybody(request)


@secure_admin_login
def _as_everybody(request: HttpRequest) -> HttpResponse:
    """Reached by nobody: anonymous visitors are sent to the log-in, members are refused."""
    return HttpResponseRedirect(reverse("account_login"))


def _is_proved(request: HttpRequest, user: User) -> bool:
    """That the account has a factor is not enough: a session opened before, with the password alone, has shown none.

    What it showed must be a factor that still counts.
    """
    if not settings.JOYNEXUS_OPERATOR_MFA:
        return True
    records = get_authentication_records(request, user)
    shown = {record.get("id") for record in records if record.get("method") == "mfa"}
    return not _lacks_factor(user) and Authenticator.objects.filter(user=user, pk__in=shown).exists()


def _lacks_factor(user: User) -> bool:
    return settings.JOYNEXUS_OPERATOR_MFA and not is_mfa_enabled(user, [Authenticator.Type.TOTP])
