"""Accounts in a real browser: an invitation, a second factor, and no complaint of the content security policy."""

import base64
import hashlib
import hmac
import struct
import time
import uuid
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.support.stack import Stack

pytestmark = pytest.mark.browser

PASSWORD = "a battery of staples"
PERIOD_S = 30


def code_of(secret: str, counter: int) -> str:
    """RFC 6238, six digits."""
    key = base64.b32decode(secret + "=" * (-len(secret) % 8))
    digest = hmac.new(key, struct.pack(">Q", counter), hashlib.sha1).digest()
    start = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[start : start + 4])[0] & 0x7FFFFFFF) % 10**6:06d}"


def invited(stack: Stack, lab: dict[str, str]) -> str:
    body = {"email": f"{uuid.uuid4().hex[:12]}@example.org", "role": "researcher"}
    headers = {"Authorization": f"Bearer {lab['api_key']}", "Idempotency-Key": str(uuid.uuid4())}
    answer = httpx.post(f"{stack.url}/api/v1/invitations", json=body, headers=headers)
    return str(answer.raise_for_status().json()["accept_url"])


def overflows(page: Page) -> bool:
    return bool(page.evaluate("() => document.documentElement.scrollWidth > innerWidth"))


def test_an_invited_person_signs_up_and_protects_the_account(
    stack: Stack, alice: dict[str, str], page: Page, browser: Browser, complaints: list[Any]
):
    page.set_viewport_size({"width": 390, "height": 780})
    page.goto(invited(stack, alice))
    email = page.get_by_label("E-mail").input_value()
    assert not overflows(page)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create the account and join").click()
    page.wait_for_url(f"{stack.url}/")
    page.goto(f"{stack.url}/account/mfa/")
    page.get_by_role("link", name="Set up an authenticator app").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    secret = page.locator("code.secret").inner_text()
    assert page.get_by_role("img", name="QR code").evaluate("image => image.naturalWidth") > 0
    assert not overflows(page)
    used = int(time.time()) // PERIOD_S
    page.get_by_label("Authenticator code").fill(code_of(secret, used))
    page.get_by_role("button", name="Turn on").click()
    assert page.locator(".codes li").count() == 10
    elsewhere = browser.new_page()
    elsewhere.goto(f"{stack.url}/login/")
    elsewhere.get_by_label("E-mail").fill(email)
    elsewhere.get_by_label("Password").fill(PASSWORD)
    elsewhere.get_by_role("button", name="Log in").click()
    elsewhere.get_by_label("Code").fill(page.locator(".codes li").first.inner_text())
    elsewhere.get_by_role("button", name="Log in").click()
    elsewhere.wait_for_url(f"{stack.url}/")
    page.goto(f"{stack.url}/account/sessions/")
    page.get_by_role("button", name="End it").click()
    elsewhere.reload()
    assert elsewhere.url.startswith(f"{stack.url}/login/")
    elsewhere.close()
    assert complaints == []
