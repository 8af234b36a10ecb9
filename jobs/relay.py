"""The relay: pulls the runtime's journal after the applied cursor, applies it, wakes live pages.

Two relays are harmless: the cursor's row is locked and the second finds its entries applied. A kill at any
moment is harmless: the cursor and the effects of a batch commit together.
"""

import logging
import threading
from collections.abc import Callable
from time import monotonic

from django.db import Error as DatabaseError
from django.db import close_old_connections
from django.utils import timezone

from jobs import notify
from jobs.models import RuntimeCursor, RuntimeSnapshot
from jobs.runtime_client import RuntimeClient, RuntimeRefused, RuntimeUnreachable
from jobs.services.cancel import cancel_deliver
from jobs.services.caps import caps_enforce
from jobs.services.ingest import Applied, CursorAhead, batch_apply
from tenants.errors import ApplicationError

logger = logging.getLogger(__name__)

BATCH = 500
WAIT_S = 2.0  # of a long poll: also how long a stop may take
SNAPSHOT_EVERY_S = 3.0
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.2, 2.0
SAY_EVERY_S = 60.0  # the same trouble, again


class Relay:
    """One runtime's journal on its way into the database."""

    def __init__(self, runtime: RuntimeClient, *, clock_s: Callable[[], float] = monotonic) -> None:
        self._runtime = runtime
        self._clock_s = clock_s
        self._stop = threading.Event()
        self._journal_id: str | None = None
        self._snapshot_due_s = clock_s()
        self._said, self._say_again_s = "", 0.0

    def stop(self) -> None:
        """Finish the poll under way, then leave ``run``."""
        self._stop.set()

    def run(self) -> None:
        """Poll until stopped. Trouble of the runtime or the database is waited out with growing pauses."""
        backoff_s = BACKOFF_MIN_S
        while not self._stop.is_set():
            try:
                self.poll(wait_s=WAIT_S)
                backoff_s = BACKOFF_MIN_S
            except (RuntimeUnreachable, RuntimeRefused, DatabaseError, CursorAhead, ApplicationError) as error:
                self._say(error)
                self._journal_id = None
                close_old_connections()
                self._stop.wait(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    def _say(self, error: Exception) -> None:
        trouble, now_s = f"{type(error).__name__}: {error}", self._clock_s()
        if trouble != self._said or now_s >= self._say_again_s:
            self._said, self._say_again_s = trouble, now_s + SAY_EVERY_S
            logger.warning("the relay waits: %s", trouble)

    def poll(self, *, wait_s: float) -> Applied | None:
        """Pull one batch and apply it; None if the runtime began a new journal meanwhile (ask again)."""
        if self._journal_id is None or self._clock_s() >= self._snapshot_due_s:
            self._snapshot()
        after = _cursor(self._journal_id or "")
        batch = self._runtime.events(after=after, limit=BATCH, wait_s=wait_s)
        if batch.journal_id != self._journal_id:
            logger.warning("the runtime has a new journal %s (was %s)", batch.journal_id, self._journal_id)
            self._journal_id = None
            return None
        applied = batch_apply(batch, after=after)
        notify.wake(applied.newest)
        self._stop_spent(applied, batch.journal_id)
        return applied

    def _stop_spent(self, applied: Applied, journal_id: str) -> None:
        """Stop what has come to a cap by this batch, and tell the runtime at once: each report later costs money."""
        for job_id in caps_enforce(applied.charged, source=journal_id, newest=applied.newest_usage):
            cancel_deliver(job_id, runtime=self._runtime)

    def _snapshot(self) -> None:
        status = self._runtime.status()
        self._journal_id = status.journal_id
        self._snapshot_due_s = self._clock_s() + SNAPSHOT_EVERY_S
        RuntimeSnapshot.objects.update_or_create(
            journal_id=status.journal_id,
            defaults={"status": status.model_dump(mode="json"), "seen_at": timezone.now()},
        )


def _cursor(journal_id: str) -> int:
    row = RuntimeCursor.objects.filter(journal_id=journal_id).values_list("last_seq", flat=True).first()
    return row or 0
