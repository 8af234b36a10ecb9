"""Routes of the billing app under /api/v1/."""

from django.urls import path

from tenants.billing.budgets import api as budget_api
from tenants.billing.invoices import api as invoice_api
from tenants.billing.ledger import api as balance_api
from tenants.billing.prices import api as price_api
from tenants.billing.usage import api

urlpatterns = [
    path("prices", price_api.PriceListApi.as_view()),
    path("usage", api.UsageApi.as_view()),
    path("usage/csv", api.UsageCsvApi.as_view()),
    path("balance", balance_api.BalanceApi.as_view()),
    path("ledger", balance_api.LedgerApi.as_view()),
    path("budgets", budget_api.BudgetListApi.as_view()),
    path("budgets/<uuid:budget_id>", budget_api.BudgetApi.as_view()),
    path("invoices", invoice_api.InvoiceListApi.as_view()),
    path("invoices/<uuid:invoice_id>", invoice_api.InvoiceApi.as_view()),
    path("invoices/<uuid:invoice_id>/csv", invoice_api.InvoiceCsvApi.as_view()),
]
