"""Members, projects, keys, webhooks, audit, appearance."""

from django.urls import URLPattern, path

from frontend.views.settings import appearance, audit, keys, members, projects, webhooks

_DELIVERY = "settings/webhooks/deliveries/<uuid:delivery_id>/again/"
_ENDPOINT = "settings/webhooks/<uuid:webhook_id>"

urlpatterns: list[URLPattern] = [
    path("settings/", members.settings_home, name="settings"),
    path("settings/members/", members.members_page, name="settings_members"),
    path("settings/members/<int:member_id>/role/", members.member_role, name="settings_member_role"),
    path("settings/members/<int:member_id>/remove/", members.member_remove, name="settings_member_remove"),
    path("settings/invitations/<uuid:invitation_id>/revoke/", members.invitation_revoke, name="settings_uninvite"),
    path("settings/projects/", projects.projects_page, name="settings_projects"),
    path("settings/projects/<uuid:project_id>/rename/", projects.project_rename, name="settings_project_rename"),
    path("settings/projects/<uuid:project_id>/archive/", projects.project_archive, name="settings_project_archive"),
    path("settings/keys/", keys.keys_page, name="settings_keys"),
    path("settings/keys/<uuid:key_id>/revoke/", keys.key_revoke, name="settings_key_revoke"),
    path("settings/webhooks/", webhooks.webhooks_page, name="settings_webhooks"),
    path(f"{_ENDPOINT}/change/", webhooks.webhook_change, name="settings_webhook_change"),
    path(f"{_ENDPOINT}/switch/", webhooks.webhook_switch, name="settings_webhook_switch"),
    path(f"{_ENDPOINT}/secret/", webhooks.webhook_secret, name="settings_webhook_secret"),
    path(f"{_ENDPOINT}/test/", webhooks.webhook_test, name="settings_webhook_test"),
    path(f"{_ENDPOINT}/delete/", webhooks.webhook_delete, name="settings_webhook_delete"),
    path(_DELIVERY, webhooks.delivery_again, name="settings_delivery_again"),
    path("settings/audit/", audit.audit_page, name="settings_audit"),
    path("settings/appearance/", appearance.appearance_page, name="settings_appearance"),
]
