"""Every page x everybody who might open it, against `page_table`. An undeclared page fails."""

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from tests.isolation.page_table import PAGES
from tests.isolation.test_route_matrix import neutral
from tests.support.everybody import Cast, cast_of, missing, rows_of, undone
from tests.support.factories import make_key
from tests.support.routes import fill, page_routes
from tests.support.story import Story

PEOPLE = ("anonymous", "owner", "researcher", "viewer", "billing", "stranger")
PATHS = sorted({route.split(" ")[1] for route in PAGES})
LOGIN_PATHS = ("/login/", "/account/confirm/")
OPEN_TO_ANYBODY = ("/logout/", "/account/mfa/authenticate/")  # they redirect on their own


@pytest.fixture(autouse=True)
def _fresh_limits():
    cache.clear()


@pytest.fixture
def cast(story: Story) -> Cast:
    return cast_of(story)


@pytest.fixture
def ids(story: Story) -> dict[str, str]:
    return rows_of(story) | {"uidb36": "1", "key": "no-key"}


def call(client: Client, route: str, ids: dict[str, str]) -> Any:
    method, path = route.split(" ")
    with undone():
        return getattr(client, method.lower())(fill(path, ids))


def browser_of(cast: Cast, who: str) -> Client:
    return Client() if who == "anonymous" else cast.person(who).browser()


def test_every_page_is_declared_and_every_declared_page_exists():
    assert page_routes() == PATHS


@pytest.mark.parametrize("route", PAGES)
def test_everybody_gets_the_declared_answer(route: str, cast: Cast, ids: dict[str, str]):
    told = {who: str(call(browser_of(cast, who), route, ids).status_code) for who in PEOPLE}
    assert told == dict(zip(PEOPLE, PAGES[route].split(), strict=True))


@pytest.mark.django_db
@pytest.mark.parametrize("path", PATHS)
def test_a_method_that_is_not_declared_is_not_handled(path: str, cast: Cast, ids: dict[str, str]):
    for method in ("GET", "POST"):
        if f"{method} {path}" not in PAGES:
            assert call(cast.owner.browser(), f"{method} {path}", ids).status_code == 405


@pytest.mark.parametrize("route", [route for route in PAGES if PAGES[route].startswith("302")])
def test_a_visitor_is_sent_to_the_log_in(route: str, ids: dict[str, str]):
    answer = call(Client(), route, ids)
    if route.split(" ")[1] not in OPEN_TO_ANYBODY:
        assert answer["Location"].split("?")[0] in LOGIN_PATHS


@pytest.mark.parametrize("route", PAGES)
@pytest.mark.parametrize("kind", ["live", "wrong-scope", "expired"])
def test_no_key_opens_a_page(route: str, kind: str, cast: Cast, ids: dict[str, str]):
    own: dict[str, Any] = {
        "live": {},
        "wrong-scope": {"scopes": ["runtime:read"]},
        "expired": {"expires_at": timezone.now()},
    }[kind]
    text = make_key(cast.owner.tenant, "owner", cast.owner.user, **own)[1]
    answer = call(Client(headers={"Authorization": f"Bearer {text}"}), route, ids)
    assert str(answer.status_code) == PAGES[route].split()[0]


@pytest.mark.parametrize("route", [route for route in PAGES if "_id>" in route])
def test_a_foreign_row_equals_a_missing_one_byte_for_byte(route: str, cast: Cast, ids: dict[str, str]):
    nothing = missing(ids)
    browser = cast.stranger.browser()
    answers = [(call(browser, route, which), fill(route.split(" ")[1], which)) for which in (ids, nothing)]
    assert [answer.status_code for answer, _ in answers] == [404, 404]
    foreign, absent = (neutral(answer, path) for answer, path in answers)
    assert foreign == absent
