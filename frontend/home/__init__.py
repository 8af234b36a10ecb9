"""What the home page shows, put together from selectors: each part is a constant number of queries."""
