"""`/ws/jobs/<id>?after=SEQ`: a job's rows as they appear."""

import asyncio
from typing import ClassVar
from uuid import UUID

from channels.db import database_sync_to_async

from control_plane.live.reader import Reader, fresh_session
from control_plane.live.rows import job_frame
from jobs.models import Job
from jobs.notify import job_group
from jobs.selectors.jobs import job_for_user
from jobs.selectors.stream import StreamPage, stream_page
from jobs.states import TERMINAL


class JobStream(Reader):
    """One reader of one job. Reconnecting with the newest ``seq`` it has seen gives every later row once."""

    bill_every_s: ClassVar[float] = 2.0  # sums over usage and spans cost more than the rows

    job: Job
    after = 0
    told = False
    owes_bill = False  # rows were told without it
    bill_due_s = 0.0

    def take_cursor(self, after: str | None) -> bool:
        """A number; 0 if absent."""
        if after is None:
            return True
        if not after.isascii() or not after.isdigit() or len(after) > 18:
            return False
        self.after = int(after)
        return True

    async def may_read(self) -> bool:
        job_id: UUID = self.scope["url_route"]["kwargs"]["job_id"]
        known = await fresh_session(self.scope["session"].session_key)
        job = await database_sync_to_async(job_for_user)(known[0], job_id) if known else None
        if job is not None:
            self.job = job
        return job is not None

    def group(self) -> str:
        return job_group(self.job.tenant_id, self.job.pk)

    async def send_news(self) -> None:
        """Pages until there is no more."""
        while (await self._send_page()).more:
            pass

    async def _send_page(self) -> StreamPage:
        page = await database_sync_to_async(stream_page)(self.job.tenant, self.job.pk, after=self.after)
        now_s = asyncio.get_running_loop().time()
        has_news = page.seq > self.after or not self.told  # the first frame tells the job's state even without rows
        due = now_s >= self.bill_due_s or page.job.state in TERMINAL
        if has_news or (self.owes_bill and due):
            with_bill = due and not page.more  # sums are costly: while a reader catches up, the last page carries them
            self.bill_due_s = now_s + self.bill_every_s if with_bill else self.bill_due_s
            self.told, self.owes_bill, self.after = True, not with_bill, max(self.after, page.seq)
            await self.tell(await database_sync_to_async(job_frame)(page, with_bill=with_bill))
        return page
