"""Usage, budgets, credit, prices and invoices."""

from django.urls import URLPattern, path

from frontend.views import billing, billing_budgets, billing_money, usage

urlpatterns: list[URLPattern] = [
    path("usage/", usage.usage_page, name="usage"),
    path("billing/budgets/", billing_budgets.budgets_page, name="budgets"),
    path("billing/budgets/<uuid:budget_id>/", billing_budgets.budget_change, name="budget_change"),
    path("billing/budgets/<uuid:budget_id>/end/", billing_budgets.budget_end, name="budget_end"),
    path("billing/credit/", billing_money.credit_page, name="credit"),
    path("billing/credit/csv/", billing_money.ledger_csv, name="ledger_csv"),
    path("billing/prices/", billing_money.prices_page, name="prices"),
    path("billing/invoices/", billing.invoice_table, name="invoices"),
    path("billing/invoices/<uuid:invoice_id>/", billing.invoice_page, name="invoice"),
]
