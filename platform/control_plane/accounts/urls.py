"""Routes of accounts: those of django-allauth that we use, under our own paths, and ours."""

from allauth.account import views as account
from django.urls import URLPattern, URLResolver, include, path, re_path

from control_plane.accounts.invitations import accept_invitation
from control_plane.accounts.sessions import LogOutView, sessions_page
from control_plane.accounts.tenant_switch import switch_tenant

urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", account.login, name="account_login"),
    path("logout/", LogOutView.as_view(), name="account_logout"),
    path("tenant/", switch_tenant, name="switch_tenant"),
    path("invitations/accept/<str:token>/", accept_invitation, name="invitation_accept"),
    path("account/inactive/", account.account_inactive, name="account_inactive"),
    path("account/confirm/", account.reauthenticate, name="account_reauthenticate"),
    path("account/password/", account.password_change, name="account_change_password"),
    path("account/password/set/", account.password_set, name="account_set_password"),
    path("account/password/reset/", account.password_reset, name="account_reset_password"),
    path("account/password/reset/sent/", account.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^account/password/reset/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path(
        "account/password/reset/done/",
        account.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    path("account/sessions/", sessions_page, name="usersessions_list"),
    path("account/mfa/", include("allauth.mfa.urls")),
]
