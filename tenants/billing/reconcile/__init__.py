"""Comparing the books with themselves: every check is a function that reads and returns what it compared."""

from tenants.billing.reconcile import invoices, ledger, storage, usage
from tenants.billing.reconcile.comparison import Check, Comparison, Difference

__all__ = ["CHECKS", "Check", "Comparison", "Difference"]

# By the name that `ReconciliationDifference.check_name` and the figures of a run have.
CHECKS: dict[str, Check] = {
    "every_event_is_rated": usage.every_event_is_rated,
    "free_work_costs_nothing": usage.free_work_costs_nothing,
    "running_sums_are_the_ratings": usage.running_sums_are_the_ratings,
    "meter_totals_are_the_billed_units": usage.meter_totals_are_the_billed_units,
    "movements_sum_to_zero": ledger.movements_sum_to_zero,
    "balances_are_the_entries": ledger.balances_are_the_entries,
    "usage_is_booked": ledger.usage_is_booked,
    "holds_are_booked": ledger.holds_are_booked,
    "lines_are_the_usage": invoices.lines_are_the_usage,
    "totals_are_the_lines": invoices.totals_are_the_lines,
    "closed_months_are_billed": invoices.closed_months_are_billed,
    "invoices_are_booked": invoices.invoices_are_booked,
    "corrections_fit_their_invoice": invoices.corrections_fit_their_invoice,
    "numbers_have_no_gap": invoices.numbers_have_no_gap,
    "stored_bytes_are_the_files": storage.stored_bytes_are_the_files,
}
