"""Nudges to the worker that sends webhooks. The rows are the truth; a lost nudge is made up for by the sweep."""

import logging
from uuid import UUID

from celery import current_app
from django.db import transaction

logger = logging.getLogger(__name__)

DELIVER = "tenants.webhooks.tasks.deliver"


def nudge_on_commit(delivery_id: UUID, *, tries: int) -> None:
    """Ask for try number ``tries`` + 1 of a delivery once the surrounding transaction has committed."""
    transaction.on_commit(lambda: nudge(delivery_id, tries=tries), robust=True)


def nudge(delivery_id: UUID, *, tries: int) -> bool:
    """Send the message now. False if the broker is away: the row stays due and the sweep asks again."""
    try:
        current_app.send_task(DELIVER, args=[str(delivery_id), tries], retry=False)
    except Exception as error:  # every transport has its own exceptions
        logger.warning("webhook delivery %s: no message sent: %s", delivery_id, error)
        return False
    return True
