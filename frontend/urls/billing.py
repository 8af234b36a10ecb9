"""Usage, budgets and invoices."""

from django.urls import URLPattern, path

from frontend.views import billing, usage

urlpatterns: list[URLPattern] = [
    path("usage/", usage.usage_page, name="usage"),
    path("billing/invoices/", billing.invoice_table, name="invoices"),
    path("billing/invoices/<uuid:invoice_id>/", billing.invoice_page, name="invoice"),
]
