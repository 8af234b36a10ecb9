"""Whether a job may enter: what it asks for fits together, and the tenant has room and money for it."""
