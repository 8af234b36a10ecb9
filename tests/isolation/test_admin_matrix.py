"""Every route of the admin x everybody who is not an operator: none opens, with a session or with a key."""

from typing import Any

import pytest
from django.test import Client

from tenants.models import Role
from tests.support.everybody import rows_of
from tests.support.factories import make_key
from tests.support.routes import admin_routes, fill
from tests.support.story import Story

pytestmark = pytest.mark.django_db


class Anything(dict[str, str]):
    """A value for every parameter an admin route may have."""

    def __missing__(self, name: str) -> str:
        return {"app_label": "tenants", "url": "nowhere"}.get(name, "1")


def refused(answer: Any) -> bool:
    """Sent to a log-in (from the log-out by way of the index), or told no; whether the row exists is not told."""
    if answer.status_code == 302:
        return answer["Location"].split("?")[0] in {"/admin/login/", "/login/", "/admin/"}
    return answer.status_code == 403


@pytest.mark.parametrize("who", ["anonymous", "owner", "researcher", "viewer", "key of the owner"])
def test_no_route_of_the_admin_opens_for_anybody_but_an_operator(story: Story, who: str):
    ids = Anything(rows_of(story))
    people = {"owner": story.alice, "researcher": story.bob, "viewer": story.viewer}
    client = people[who].browser() if who in people else Client()
    if who == "key of the owner":
        text = make_key(story.alice.tenant, Role.OWNER, story.alice.user)[1]
        client = Client(headers={"Authorization": f"Bearer {text}"})
    paths = [fill(path, ids) for path in admin_routes()]
    assert len(paths) > 50
    opened = [
        (method, path, answer.status_code)
        for path in paths
        for method in ("get", "post")
        if not refused(answer := getattr(client, method)(path))
    ]
    assert opened == []
