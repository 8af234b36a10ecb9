"""Puts the operators' site in the place of Django's: `@admin.register` everywhere goes to it."""

from django.contrib.admin.apps import AdminConfig


class OperatorAdminConfig(AdminConfig):
    default_site = "control_plane.operator.site.OperatorSite"
