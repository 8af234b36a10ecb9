"""Months and their invoices: drafts, final ones, corrections."""
