"""The ASGI application: pages and API by Django, live streams by Channels."""

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
django_application = get_asgi_application()  # first: it loads the apps the routes need

from control_plane.body_limit import BodyLimit  # noqa: E402
from control_plane.known_caller import is_known  # noqa: E402
from control_plane.live.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": BodyLimit(
            django_application,
            is_known=is_known,
            max_bytes=settings.JOYNEXUS_BODY_MAX_BYTES,
            upload_max_bytes=min(settings.JOYNEXUS_UPLOAD_MAX_BYTES, settings.JOYNEXUS_CHUNK_MAX_BYTES),
            chunk_max_bytes=settings.JOYNEXUS_CHUNK_MAX_BYTES,
        ),
        # The browser's Origin must be one of our hosts: a foreign page cannot ride on a user's cookie.
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
