"""Routes of live streams."""

from channels.generic.websocket import AsyncWebsocketConsumer
from django.urls import path, re_path

from control_plane.live.consumers import JobStream
from control_plane.live.reader import NOT_FOUND
from control_plane.live.tenant_stream import TenantStream


class NoSuchStream(AsyncWebsocketConsumer):
    """Any other path: refused like a missing job."""

    async def connect(self) -> None:
        await self.close(NOT_FOUND)


websocket_urlpatterns = [
    path("ws/live", TenantStream.as_asgi()),
    path("ws/jobs/<uuid:job_id>", JobStream.as_asgi()),
    re_path(r"^.*$", NoSuchStream.as_asgi()),
]
