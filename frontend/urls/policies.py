"""Policies: what jobs made and others start from."""

from django.urls import URLPattern, path

from frontend.views import policies, policy_acts

urlpatterns: list[URLPattern] = [
    path("policies/", policies.policy_table, name="policies"),
    path("policies/compare/", policies.policy_comparison, name="policies_compare"),
    path("policies/<uuid:policy_id>/", policies.policy_page, name="policy"),
    path("policies/<uuid:policy_id>/delete/", policy_acts.policy_delete, name="policy_delete"),
    path("policies/<uuid:policy_id>/keep/", policy_acts.policy_keep, name="policy_keep"),
]
