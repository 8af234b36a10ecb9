"""`/ws/live?after=CURSOR`: which topics of the open tenant changed. The pages read the content anew themselves."""

from typing import ClassVar

from channels.db import database_sync_to_async

from control_plane.live.reader import Reader, fresh_session
from control_plane.middleware import SESSION_TENANT
from jobs.notify import tenant_group
from jobs.selectors.changes import Signatures, changed, cursor_of, signatures, signatures_of
from tenants.identity import Actor, actor_for_user
from tenants.models import Tenant
from tenants.permissions import Permission


class TenantStream(Reader):
    """One page of one member. It ends when the session is another tenant's: what the page shows is not of that one.

    Reconnecting with the newest cursor tells exactly the topics that changed meanwhile; without one, every topic.
    """

    poll_s: ClassVar[float] = 3.0
    coalesce_s: ClassVar[float] = 2.0  # pages read their parts anew after each frame

    tenant: Tenant | None = None
    actor: Actor
    known: Signatures = {}
    told = False

    def take_cursor(self, after: str | None) -> bool:
        found = signatures_of(after or "")
        self.known = found or {}
        return found is not None

    async def may_read(self) -> bool:
        own = await fresh_session(self.scope["session"].session_key)
        if own is None:
            return False
        user, session = own
        actor = await database_sync_to_async(actor_for_user)(user, remembered=session.get(SESSION_TENANT))
        if (
            actor is None
            or not actor.may(Permission.JOBS_READ)
            or (self.tenant is not None and actor.tenant.pk != self.tenant.pk)
        ):
            return False
        self.actor, self.tenant = actor, actor.tenant
        return True

    def group(self) -> str:
        return tenant_group(self.actor.tenant.pk)

    async def send_news(self) -> None:
        """One frame if anything changed; the first one comes in any case, so that the page knows it is live."""
        now = await database_sync_to_async(signatures)(self.actor.tenant, self.actor.permissions)
        topics = changed(self.known, now)
        if topics or not self.told:
            self.known, self.told = now, True
            await self.tell({"type": "changed", "topics": topics, "cursor": cursor_of(now)})
