"""Links of pages: none leads its reader to a page that is missing or that their role may not open."""

import re
from html import unescape

import pytest
from django.test import Client

from tests.support.everybody import rows_of
from tests.support.factories import MembershipFactory
from tests.support.jobs import make_job, make_version
from tests.support.story import Story

pytestmark = pytest.mark.django_db

ROLES = ("owner", "admin", "researcher", "viewer", "billing")
_LINK = re.compile(r'<a\b[^>]*\bhref="([^"#][^"]*)"')
_ELSEWHERE = re.compile(r"https?:|mailto:|/api/v1/|/static/")
_PAGES_MAX = 150  # a walk that finds more has left the console


def _links(page: str, path: str) -> set[str]:
    found = {unescape(link) for link in _LINK.findall(page)}
    return {f"{path.partition('?')[0]}{link}" if link.startswith("?") else link for link in found}


@pytest.mark.parametrize("role", ROLES)
def test_every_link_that_a_role_is_shown_opens_for_it(story: Story, role: str):
    rows_of(story)
    make_version(story.alice)
    make_job(story.alice, name="tagged", tags=["figure"])
    browser = Client()
    browser.force_login(MembershipFactory(tenant=story.alice.tenant, role=role).user)
    origin: dict[str, str] = {"/": "the address bar"}
    seen: set[str] = set()
    refused = []
    while waiting := [path for path in origin if path not in seen]:
        path = waiting[0]
        seen.add(path)
        answer = browser.get(path)
        if answer.status_code >= 400:
            refused.append((path, answer.status_code, origin[path]))
        if answer.status_code != 200 or answer.streaming or not answer["Content-Type"].startswith("text/html"):
            continue
        for link in _links(answer.content.decode(), path):
            if not _ELSEWHERE.match(link) and len(origin) < _PAGES_MAX:
                origin.setdefault(link, path)
    assert refused == []
    assert {"/", "/jobs/", "/usage/", "/settings/"} <= seen
