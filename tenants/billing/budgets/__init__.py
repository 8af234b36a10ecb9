"""What a tenant allows itself in a month."""
