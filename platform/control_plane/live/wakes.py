"""Listening for wakes. The channel layer may be down at any moment: then nothing comes and the reader polls."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from channels.layers import get_channel_layer

logger = logging.getLogger(__name__)

RETRY_S = 2.0


async def listen(group: str, *woken: asyncio.Event) -> None:
    """Set these events at each message of a group, until cancelled. A broken layer is joined again."""
    while True:
        try:
            await _listen_once(group, woken)
        except Exception as error:  # every layer has its own exceptions
            logger.info("no wakes of %s for now: %s: %s", group, type(error).__name__, error)
            await asyncio.sleep(RETRY_S)
            _set(woken)  # what came meanwhile was missed


def _set(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()


async def _listen_once(group: str, woken: Iterable[asyncio.Event]) -> None:
    layer = get_channel_layer()
    if layer is None:
        await asyncio.Event().wait()
    channel = await layer.new_channel()
    try:
        await layer.group_add(group, channel)
        while True:
            await layer.receive(channel)
            _set(woken)
    finally:
        with contextlib.suppress(Exception):
            await layer.group_discard(group, channel)
