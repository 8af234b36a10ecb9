"""The way to Celery: can the broker be reached, and how many messages wait there for a worker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import ChannelError
from kombu import Connection

from control_plane.celery import app

_TIMEOUT_S = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """``waiting``: messages by queue that no worker has taken yet; none, with the ``fault``, if nobody answers."""

    waiting: Mapping[str, int]
    fault: str = ""


def broker_now() -> Broker:
    """Asked with a short limit: a page about trouble must not hang on it."""
    try:
        with app.connection_for_read(connect_timeout=_TIMEOUT_S) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=_TIMEOUT_S)
            return Broker(waiting={queue: _waiting(connection, queue) for queue in queues()})
    except Exception as error:  # every transport has its own
        return Broker(waiting={}, fault=f"{type(error).__name__}: {error}")


def queues() -> list[str]:
    """The default one, and those that tasks are routed to."""
    return [app.conf.task_default_queue, *(route["queue"] for route in app.conf.task_routes.values())]


def _waiting(connection: Connection, queue: str) -> int:
    channel: Any = connection.default_channel  # every transport has its own class of it
    try:
        found = channel.queue_declare(queue=queue, passive=True)
    except ChannelError:  # an empty list is no key in the broker
        return 0
    return int(found.message_count)
