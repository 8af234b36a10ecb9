"""Signing secrets at rest: encrypted with the newest key of a ring, readable with all of them."""

import base64
import secrets

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from standardwebhooks import Webhook

from tenants.scope import platform_scope
from tenants.webhooks.models import WebhookEndpoint

_SECRET_BYTES = 32


def new_secret() -> str:
    """A fresh signing secret, ``whsec_`` and 32 random bytes in base64."""
    return Webhook._SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def seal(secret: str) -> str:
    """The secret as it is stored."""
    return _ring().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    """The secret in the clear. Raises cryptography.fernet.InvalidToken if no key of the ring opens it."""
    return _ring().decrypt(sealed.encode()).decode()


def reseal_all() -> int:
    """Encrypt every stored secret anew with the ring's newest key; returns how many endpoints changed."""
    ring, count = _ring(), 0
    with platform_scope():
        for endpoint in WebhookEndpoint.objects.order_by("pk").iterator():
            fresh = {
                name: ring.rotate(getattr(endpoint, name).encode()).decode()
                for name in ("secret", "former_secret")
                if getattr(endpoint, name)
            }
            # Only what was read: a secret that its owner has changed meanwhile is sealed with the newest key already.
            seen = {name: getattr(endpoint, name) for name in fresh}
            count += WebhookEndpoint.objects.filter(pk=endpoint.pk, **seen).update(**fresh)
    return count


def _ring() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.JOYNEXUS_WEBHOOK_KEYS])
