"""One job: its page by tabs, the parts of it that are read anew, and what can be done with it."""
