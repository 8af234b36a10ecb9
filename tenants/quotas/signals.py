"""What the quotas app tells apps above it, inside the transaction of the change."""

from django.dispatch import Signal

# Sent when work that waited may start: a limit was changed. ``tenant_id`` is None if every tenant's was.
limits_changed = Signal()
