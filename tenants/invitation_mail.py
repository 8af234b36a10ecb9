"""The letter an invited person gets."""

import logging

from django.core.mail import send_mail
from django.utils import timezone

from tenants.models import Invitation

logger = logging.getLogger(__name__)

_TEXT = """\
{inviter} invites you to join {tenant} on JoyNexus as {role}.

Accept here, until {until} UTC:

{link}

The link works once, for this address only. If you do not know what this is about, ignore this letter.
"""


def send_invitation(invitation: Invitation, link: str, *, inviter: str) -> bool:
    """Send it. False if the mail server failed: the inviter has the link too, and the log says so."""
    text = _TEXT.format(
        inviter=inviter,
        tenant=invitation.tenant.name,
        role=invitation.role,
        until=timezone.localtime(invitation.expires_at, timezone.get_default_timezone()).strftime("%Y-%m-%d %H:%M"),
        link=link,
    )
    subject = " ".join(f"[JoyNexus] Join {invitation.tenant.name}".split())  # a header has one line
    try:
        send_mail(subject, text, None, [invitation.email])
    except Exception:  # every mail backend has its own exceptions
        logger.exception("invitation %s could not be e-mailed", invitation.pk)
        return False
    return True
