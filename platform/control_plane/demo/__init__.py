"""`manage.py demo`: two tenants fine-tune on real simulator demonstrations, together, through the public API."""
