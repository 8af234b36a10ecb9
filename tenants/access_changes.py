"""Somebody's rights changed: their live sockets look again at once, not at their next re-check."""

import asyncio
import logging
from collections.abc import Sequence

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

logger = logging.getLogger(__name__)

CHANGE_TYPE = "access.changed"
_TIMEOUT_S = 1.0


def user_group(user_id: int) -> str:
    """The channel layer's group of one user's sockets."""
    return f"user.{user_id}"


def access_changed(user_ids: Sequence[int]) -> None:
    """After the commit, tell these users' sockets to ask anew. A lost message costs one re-check interval."""
    transaction.on_commit(lambda: _tell(user_ids))


def _tell(user_ids: Sequence[int]) -> None:
    try:
        async_to_sync(_send)(user_ids)
    except Exception as error:  # a broken channel layer must never hurt the caller
        logger.info("sockets of %d users not told: %s", len(user_ids), error)


async def _send(user_ids: Sequence[int]) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    async with asyncio.timeout(_TIMEOUT_S):
        for user_id in user_ids:
            await layer.group_send(user_group(user_id), {"type": CHANGE_TYPE})
