"""What every live stream has in common: a cursor of the reader's, access that is asked for again, wakes and polls."""

import asyncio
import contextlib
import json
import logging
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar
from urllib.parse import parse_qs

from allauth.core.internal.sessionkit import get_session_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase

from control_plane.live.wakes import listen
from tenants.access_changes import user_group
from tenants.models import User

logger = logging.getLogger(__name__)

NOT_FOUND, ACCESS_ENDED, BAD_CURSOR, BROKEN = 4404, 4403, 4400, 1011


class Reader(AsyncWebsocketConsumer, ABC):
    """One reader of something. Whoever may not read it, and a visitor who is not logged in, get the same close.

    The database tells, the channel layer only wakes: a lost wake costs one poll. The cursor is the reader's, so
    reconnecting with the newest one goes on without a gap.
    """

    poll_s: ClassVar[float] = 2.0  # a lost wake costs at most this
    coalesce_s: ClassVar[float] = 0.25  # frames come no closer together
    ping_s: ClassVar[float] = 20.0
    recheck_s: ClassVar[float] = 60.0

    channel_layer_alias = ""  # none: the base class refuses to connect while the layer is down; `listen` does not
    tasks: list[asyncio.Task[None]] = []

    @abstractmethod
    def take_cursor(self, after: str | None) -> bool:
        """Keep the query's ``after`` (None: not given). False if nobody ever got such a cursor."""

    @abstractmethod
    async def may_read(self) -> bool:
        """Whether the reader may (still) read; asked at the start, every ``recheck_s``, and when rights changed."""

    @abstractmethod
    def group(self) -> str:
        """The channel layer's group whose messages wake this reader."""

    @abstractmethod
    async def send_news(self) -> None:
        """Tell everything after the cursor."""

    async def connect(self) -> None:
        await self.accept()  # a close before the handshake would reach the browser without its code
        if not self._cursor_taken():
            await self.close(BAD_CURSOR)
            return
        if not self.scope["user"].is_authenticated or not await self.may_read():
            await self.close(NOT_FOUND)
            return
        self.woken, self.doubted = asyncio.Event(), asyncio.Event()
        work = (
            listen(self.group(), self.woken),
            listen(user_group(self.scope["user"].pk), self.doubted, self.woken),
            self._pump(),
        )
        self.tasks = [asyncio.create_task(part) for part in work]

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Readers say nothing; whatever they say is ignored."""

    async def tell(self, frame: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(frame, allow_nan=False, separators=(",", ":")))

    async def _pump(self) -> None:
        """Send what is new, then wait for a wake or the next poll; ping and re-check access."""
        clock = asyncio.get_running_loop().time
        ping_due = clock() + self.ping_s
        recheck_due = clock() + self.recheck_s
        try:
            while True:
                self.woken.clear()  # before reading: what arrives meanwhile wakes again
                if self.doubted.is_set() or clock() >= recheck_due:
                    self.doubted.clear()
                    recheck_due = clock() + self.recheck_s
                    if not await self.may_read():
                        await self.close(ACCESS_ENDED)
                        return
                await self.send_news()
                if clock() >= ping_due:
                    ping_due = clock() + self.ping_s
                    await self.tell({"type": "ping"})
                await asyncio.sleep(self.coalesce_s)
                await self._wait()
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("%s broke", type(self).__name__)
            await self.close(BROKEN)

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), timeout=max(0.0, self.poll_s - self.coalesce_s))

    def _cursor_taken(self) -> bool:
        query = parse_qs(self.scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
        values = query.pop("after", [None])
        return not query and len(values) == 1 and self.take_cursor(values[0])


async def fresh_session(key: str) -> tuple[User, SessionBase] | None:
    """The session read anew: one that was ended, an old password's, and a closed account's are None."""
    return await database_sync_to_async(_session)(key)


def _session(key: str) -> tuple[User, SessionBase] | None:
    session: SessionBase = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_session_user(session) if session.exists(key) else None
    return (user, session) if isinstance(user, User) else None
