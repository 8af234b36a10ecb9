"""`/ws/jobs/<id>?after=SEQ`: a job's rows as they appear. The database tells, the channel layer only wakes."""

import asyncio
import contextlib
import json
import logging
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from allauth.core.internal.sessionkit import get_session_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from control_plane.live.rows import job_frame
from control_plane.live.wakes import listen
from jobs.models import Job
from jobs.notify import job_group
from jobs.selectors.jobs import job_for_user
from jobs.selectors.stream import StreamPage, stream_page
from jobs.states import TERMINAL
from tenants.access_changes import user_group
from tenants.models import User

logger = logging.getLogger(__name__)

NOT_FOUND, ACCESS_ENDED, BAD_CURSOR = 4404, 4403, 4400
POLL_S = 2.0  # a lost wake costs at most this
COALESCE_S = 0.25  # at most four frames a second
BILL_EVERY_S = 2.0  # sums over usage and spans cost more than the rows
PING_S = 20.0
RECHECK_S = 60.0


class JobStream(AsyncWebsocketConsumer):
    """One reader of one job.

    A foreign and a missing job, and a visitor who is not logged in, get the same close. The cursor is the
    reader's: reconnecting with ``after=`` the newest ``seq`` it has seen gives every later row once.
    """

    channel_layer_alias = ""  # none: the base class refuses to connect while the layer is down; `listen` does not
    job: Job
    tasks: list[asyncio.Task[None]] = []
    told = False
    owes_bill = False  # rows were told without it
    bill_due_s = 0.0

    async def connect(self) -> None:
        await self.accept()  # a close before the handshake would reach the browser without its code
        after = _cursor(self.scope["query_string"])
        if after is None:
            await self.close(BAD_CURSOR)
            return
        job = await self._readable_job()
        if job is None:
            await self.close(NOT_FOUND)
            return
        self.job, self.after = job, after
        self.woken, self.doubted = asyncio.Event(), asyncio.Event()
        work = (
            listen(job_group(job.tenant_id, job.pk), self.woken),
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

    async def _pump(self) -> None:
        """Send pages until there is no more, then wait for a wake or the next poll; ping and re-check access."""
        clock = asyncio.get_running_loop().time
        ping_due = clock() + PING_S
        recheck_due = clock() + RECHECK_S
        try:
            while True:
                self.woken.clear()  # before reading: what arrives meanwhile wakes again
                if self.doubted.is_set() or clock() >= recheck_due:
                    self.doubted.clear()
                    recheck_due = clock() + RECHECK_S
                    if await self._readable_job() is None:
                        await self.close(ACCESS_ENDED)
                        return
                while (await self._send_page()).more:
                    pass
                if clock() >= ping_due:
                    ping_due = clock() + PING_S
                    await self._tell({"type": "ping"})
                await asyncio.sleep(COALESCE_S)
                await self._wait()
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("stream of job %s broke", self.job.pk)
            await self.close(1011)

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), timeout=POLL_S - COALESCE_S)

    async def _send_page(self) -> StreamPage:
        page = await database_sync_to_async(stream_page)(self.job.tenant, self.job.pk, after=self.after)
        now_s = asyncio.get_running_loop().time()
        has_news = page.seq > self.after or not self.told  # the first frame tells the job's state even without rows
        due = now_s >= self.bill_due_s or page.job.state in TERMINAL
        if has_news or (self.owes_bill and due):
            with_bill = due and not page.more  # sums are costly: while a reader catches up, the last page carries them
            self.bill_due_s = now_s + BILL_EVERY_S if with_bill else self.bill_due_s
            self.told, self.owes_bill, self.after = True, not with_bill, max(self.after, page.seq)
            await self._tell(await database_sync_to_async(job_frame)(page, with_bill=with_bill))
        return page

    async def _tell(self, frame: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(frame, allow_nan=False, separators=(",", ":")))

    async def _readable_job(self) -> Job | None:
        job_id: UUID = self.scope["url_route"]["kwargs"]["job_id"]
        if not self.scope["user"].is_authenticated:
            return None
        return await database_sync_to_async(_fresh_access)(self.scope["session"].session_key, job_id)


def _fresh_access(session_key: str, job_id: UUID) -> Job | None:
    """Read the session anew: one that was ended, an old password's, and a closed account's are out."""
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_session_user(session) if session.exists(session_key) else None
    return job_for_user(user, job_id) if isinstance(user, User) else None


def _cursor(query_string: bytes) -> int | None:
    """``after`` of a query string: 0 if absent, None if it is no number or comes with anything unknown."""
    query = parse_qs(query_string.decode("ascii", "replace"), keep_blank_values=True)
    values = query.pop("after", ["0"])
    if query or len(values) != 1 or not values[0].isascii() or not values[0].isdigit() or len(values[0]) > 18:
        return None
    return int(values[0])
