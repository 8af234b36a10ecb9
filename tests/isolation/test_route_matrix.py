"""Every REST route x everybody who might call it, against `rest_table`. An undeclared route fails."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from tenants.models import Role
from tenants.permissions import ROLE_PERMISSIONS
from tests.isolation.rest_table import ANY_MEMBER, BODIES, PUBLIC, REST
from tests.support.everybody import PARTS, Cast, cast_of, missing, rows_of, undone
from tests.support.routes import api_routes, api_views, fill, undeclared_permissions
from tests.support.story import Api, Story, api_client

PEOPLE = ("owner", "researcher", "viewer", "billing", "stranger")
ROLES = {"owner": Role.OWNER, "researcher": Role.RESEARCHER, "viewer": Role.VIEWER, "billing": Role.BILLING}
ROW_ROUTES = [route for route in REST if "_id>" in route]
VIEWS = dict(api_views())


@pytest.fixture
def cast(story: Story) -> Cast:
    return cast_of(story)


@pytest.fixture
def ids(story: Story) -> dict[str, str]:
    return rows_of(story)


def permission_of(route: str) -> Any:
    method, path = route.split(" ")
    return VIEWS[path].permission[method]


def call(api: Api, route: str, ids: dict[str, str], query: str = "") -> Any:
    """The answer; its effects are undone."""
    method, path = route.split(" ")
    path = fill(path, ids) + query
    send = (
        partial(api.get, path)
        if method == "GET"
        else partial(getattr(api, method.lower()), path, BODIES.get(route, {}))
    )
    with undone():
        return send()


def test_every_route_is_declared_and_every_declared_route_exists():
    assert set(api_routes()) == set(REST) | PUBLIC


def test_every_view_declares_the_permission_of_each_method_it_handles():
    assert undeclared_permissions(PUBLIC) == []


@pytest.mark.parametrize("route", REST)
def test_the_table_and_the_table_of_permissions_say_the_same(route: str):
    """403 exactly where the role lacks what the view asks for: two tables, written apart, that must agree."""
    wanted = permission_of(route)
    assert (wanted is None) == (route in ANY_MEMBER)
    for who, status in zip(PEOPLE[:4], REST[route].split(), strict=False):
        lacks = wanted is not None and wanted not in ROLE_PERMISSIONS[ROLES[who]]
        assert (status == "403") == lacks, who


@pytest.mark.django_db
@pytest.mark.parametrize("route", sorted(PUBLIC))
def test_a_public_route_answers_anybody(route: str):
    assert api_client().get(route.split(" ")[1]).status_code == 200


@pytest.mark.parametrize("route", REST)
def test_everybody_gets_the_declared_answer(route: str, cast: Cast, ids: dict[str, str]):
    told = {who: str(call(cast.person(who).api, route, ids).status_code) for who in PEOPLE}
    assert told == dict(zip(PEOPLE, REST[route].split(), strict=True))


@pytest.mark.parametrize("route", REST)
def test_nobody_gets_in_without_a_live_key_of_the_right_scope(route: str, cast: Cast, ids: dict[str, str]):
    now = timezone.now()
    outside = {
        "anonymous": api_client(),
        "expired": cast.keyed(expires_at=now - timedelta(seconds=1)),
        "revoked": cast.keyed(revoked_at=now),
    }
    assert {who: call(api, route, ids).status_code for who, api in outside.items()} == dict.fromkeys(outside, 401)
    narrow = call(cast.wrong_scope(permission_of(route)), route, ids)
    assert narrow.status_code == (200 if route in ANY_MEMBER else 403)


@pytest.mark.parametrize("route", ROW_ROUTES)
def test_a_foreign_row_equals_a_missing_one_byte_for_byte(route: str, cast: Cast, ids: dict[str, str]):
    nothing = missing(ids)
    answers = [(call(cast.stranger.api, route, which), fill(route.split(" ")[1], which)) for which in (ids, nothing)]
    assert [answer.status_code for answer, _ in answers] == [404, 404]
    foreign, absent = (neutral(answer, path) for answer, path in answers)
    assert foreign == absent


def neutral(answer: Any, path: str) -> tuple[bytes, dict[str, str]]:
    """Body and headers without the request's id, the path the caller sent and how many requests they have left."""
    body = answer.content.replace(answer["X-Request-ID"].encode(), b"REQUEST").replace(path.encode(), b"PATH")
    return body, {name: value for name, value in answer.items() if name not in {"X-Request-ID", "RateLimit"}}


LISTS = [
    route for route in REST if route.startswith("GET") and "<" not in route and route not in ANY_MEMBER
    and not route.endswith(("/csv", "/bases", "/runtime", "/prices"))  # files, and what is the same for everybody
]  # fmt: skip


@pytest.mark.parametrize("route", LISTS)
def test_a_list_shows_nothing_of_another_tenant(route: str, cast: Cast, ids: dict[str, str]):
    text = call(cast.stranger.api, route, ids).content.decode()
    assert not [name for name, value in ids.items() if name not in PARTS and len(value) > 8 and value in text]
    assert not [one for one in ("alice", "bob@", "Alice", str(cast.owner.tenant.pk)) if one in text]


@pytest.mark.parametrize("route", sorted(set(REST) - {"POST /api/v1/datasets"}))  # its fields come in the query
def test_no_route_ignores_a_query_parameter_it_does_not_know(route: str, cast: Cast, ids: dict[str, str]):
    answer = call(cast.owner.api, route, ids, "?surprise=1")
    assert answer.status_code == 422
    assert "?surprise" in [error["pointer"] for error in answer.json()["errors"]]


@pytest.mark.parametrize("route", ["GET /api/v1/jobs", "GET /api/v1/me"])
def test_a_method_no_view_handles_is_405(route: str, story: Story):
    path = route.split(" ")[1]
    for method in ("options", "put"):
        assert getattr(story.alice.api, method)(path).status_code == 405
