"""`manage.py demo`: four tenants improve policies in simulators, together on one base, through the public API."""
