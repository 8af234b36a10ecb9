"""Usage, budgets and invoices."""

from django.urls import URLPattern, path

from frontend.views import billing

urlpatterns: list[URLPattern] = [
    path("billing/invoices/", billing.invoice_table, name="invoices"),
    path("billing/invoices/<uuid:invoice_id>/", billing.invoice_page, name="invoice"),
]
