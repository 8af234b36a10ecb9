"""The operators' admin: Django's own, with a dashboard and one screen for each thing that is done daily."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, reverse

from control_plane.operator.csv_export import export_as_csv
from tenants.admin_base import AcrossTenants


class OperatorSite(admin.AdminSite):
    """Staff only. Screens of our own are routes of this site, beside those of the registered models."""

    site_header = "JoyNexus operations"
    site_title = "JoyNexus operations"
    index_title = "What needs attention"
    site_url = "/"
    enable_nav_sidebar = False
    empty_value_display = "–"

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self.disable_action("delete_selected")
        self.add_action(export_as_csv, "export_as_csv")

    def has_permission(self, request: HttpRequest) -> bool:
        from control_plane.accounts.operators import operator_allowed

        return operator_allowed(request)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The log-in of everybody: with its limits and its second factor."""
        from control_plane.accounts.operators import operator_login

        return operator_login(request)

    def password_change(  # type: ignore[override]  # the stubs allow a page only
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """That of everybody, which asks for the present one and tells the other sessions."""
        return HttpResponseRedirect(reverse("account_change_password"))

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Ours only: the lists that packages bring along would write past our services, and past the audit log."""
        if admin_class is not None and issubclass(admin_class, AcrossTenants):
            super().register(model_or_iterable, admin_class, **options)

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Our screens first: Django's last route catches everything."""
        from control_plane.operator.routes import screen_urls

        return [*screen_urls(self), *super().get_urls()]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        from control_plane.operator.dashboard import dashboard_page

        return dashboard_page(request)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from control_plane.operator.routes import navigation

        return super().each_context(request) | {"screens": navigation(request)}
