"""How django-allauth behaves here: nobody signs up without an invitation; secrets of authenticators are encrypted."""

import base64
import hashlib
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.http import HttpRequest
from django.utils.encoding import force_bytes

from control_plane.middleware import client_address

_NO_ADDRESS = "::"  # behind a unix socket everybody shares one allowance


class AccountAdapter(DefaultAccountAdapter):
    """Accounts are made by invitations, `bootstrap` and operators only."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "email_password_mismatch": "The e-mail address and the password do not match.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        """As the server saw it; a header anybody can send decides nothing."""
        return client_address(request) or _NO_ADDRESS

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """None: our pages say themselves what was done."""


class MfaAdapter(DefaultMFAAdapter):
    """Seeds of one-time codes are useless to whoever reads the database alone."""

    def encrypt(self, text: str) -> str:
        return _keys().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Raises ValueError if no key of this installation fits."""
        try:
            return _keys().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            raise ValueError("the secret of an authenticator does not belong to DJANGO_SECRET_KEY") from None


def _keys() -> MultiFernet:
    """The present key first; those in `SECRET_KEY_FALLBACKS` still decrypt."""
    return MultiFernet([_fernet(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])


def _fernet(secret: str | bytes) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"authenticators:" + force_bytes(secret)).digest()))
