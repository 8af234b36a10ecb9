"""What the usage pages show, put together from the bill: which month and grouping, tables, figures, a projection."""
