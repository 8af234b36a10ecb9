"""The frame around every page: what it shows to whom, parts for htmx, messages, refusals, search."""

import re
from decimal import Decimal
from typing import Any

import pytest
from django.contrib import messages
from django.contrib.messages.storage.fallback import FallbackStorage
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django_htmx.middleware import HtmxDetails

from frontend.refusals import refusal_of
from frontend.templatetags.console import handle, money_whole, run_slot
from frontend.views.page import answer
from tenants.billing.models import Budget
from tenants.errors import ApplicationError, FieldError
from tenants.scope import platform_scope
from tests.support.factories import DatasetFactory, MembershipFactory, ProjectFactory
from tests.support.jobs import make_job
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

HTMX = {"HTTP_HX_REQUEST": "true"}


def page_of(person: Person, path: str = "/jobs/") -> str:
    return person.browser().get(path).content.decode()


def bookkeeper_of(person: Person) -> Client:
    """Somebody of the same lab who reads jobs and money only."""
    browser = Client()
    browser.force_login(MembershipFactory(tenant=person.tenant, role="billing").user)
    return browser


def nav_of(page: str) -> list[str]:
    """What the navigation leads to."""
    return re.findall(r'<a[^>]*href="([^"]+)"', page.split('<nav class="side"')[1].split("</nav>")[0])


def test_the_navigation_leads_only_where_the_role_may_go(story: Story):
    owner = nav_of(page_of(story.alice))
    bookkeeper = nav_of(bookkeeper_of(story.alice).get("/jobs/").content.decode())
    assert {"/", "/jobs/", "/datasets/", "/policies/", "/runtime/"} <= set(owner)
    assert {"/", "/jobs/"} <= set(bookkeeper)
    assert not {"/runtime/", "/datasets/"} & set(bookkeeper)


def test_the_months_money_stands_beside_the_labs_budget(story: Story):
    assert "this month" in page_of(story.alice)
    with platform_scope():
        Budget.objects.create(tenant=story.alice.tenant, amount=900)
    page = page_of(story.alice)
    assert "of €900" in page
    assert re.search(r'<progress class="" value="[0.]+" max="900', page)
    assert "of €900" not in page_of(story.charlie)


def test_projects_lead_to_their_jobs_and_the_open_one_is_marked(story: Story):
    ProjectFactory(tenant=story.alice.tenant, name="Kitchen", slug="kitchen")
    assert 'href="/jobs/?project=kitchen" aria-current="true"' in page_of(story.alice, "/jobs/?project=kitchen")
    assert "kitchen" not in page_of(story.charlie)


def test_a_person_of_two_labs_can_switch_and_nobody_else_is_offered_it(story: Story):
    assert 'action="/tenant/"' not in page_of(story.alice)
    MembershipFactory(tenant=story.charlie.tenant, user=story.alice.user, role="viewer")
    assert page_of(story.alice).count('<button name="tenant"') == 2


def test_every_page_carries_a_cursor(story: Story):
    for path in ("/", "/jobs/", "/runtime/"):
        assert re.search(r'data-cursor="jobs-[0-9a-f]{16}~datasets-', page_of(story.alice, path))


def test_the_frame_asks_the_same_number_of_times_however_much_there_is(
    story: Story, django_assert_max_num_queries: Any
):
    browser = story.alice.browser()
    browser.get("/frame/")
    for _ in range(3):
        make_job(story.alice)
        ProjectFactory(tenant=story.alice.tenant)
    with django_assert_max_num_queries(8):
        assert b"3<span" in browser.get("/frame/", **HTMX).content


def test_a_visitor_who_reads_no_runtime_gets_no_word_of_it(story: Story):
    assert b"untime" not in bookkeeper_of(story.alice).get("/frame/").content
    assert b"Runtime not seen yet" in story.alice.browser().get("/frame/").content


# Parts of pages.


def _request(story: Story, method: str = "get", **headers: str) -> Any:
    request = getattr(RequestFactory(), method)("/", **headers)
    request.htmx = HtmxDetails(request)
    request.user, request.actor, request.tenant = story.alice.user, story.alice.actor, story.alice.tenant
    request.session = {}
    request._messages = FallbackStorage(request)
    return request


def test_htmx_gets_the_part_and_everybody_else_the_page(story: Story):
    context = {"refusal": refusal_of(ApplicationError(code="x", detail="Too long."))}
    part = answer(_request(story, **HTMX), "console/search/page.html", "console/parts/refusal.html", context)
    whole = answer(_request(story), "console/search/page.html", "console/parts/refusal.html", context)
    back = {**HTMX, "HTTP_HX_HISTORY_RESTORE_REQUEST": "true"}
    restored = answer(_request(story, **back), "console/search/page.html", "console/parts/refusal.html", context)
    assert b"<html" not in part.content
    assert b"<html" in whole.content
    assert b"<html" in restored.content
    assert {part["Vary"], whole["Vary"]} == {"HX-Request"}


def test_what_was_done_is_told_with_the_part_that_a_post_asked_for(story: Story):
    for method, told in (("post", True), ("get", False)):
        request = _request(story, method, **HTMX)
        messages.success(request, "Saved <b>it</b>.")
        response = answer(request, "console/search/page.html", "console/parts/refusal.html", {})
        assert ("HX-Trigger" in response) is told


# Refusals.


def test_a_refusal_says_what_is_wrong_with_which_field_and_escapes_it():
    errors = (
        FieldError(pointer="/name", code="blank", detail="Give it a name."),
        FieldError(pointer="/name", code="long", detail="At most 200 characters."),
        FieldError(pointer="/tags/0", code="bad", detail="<script> is no tag."),
    )
    told = refusal_of(ApplicationError(code="invalid", status=422, detail="Not valid.", errors=errors))
    assert told.at("/name") == "Give it a name."
    assert told.at("/note") == ""
    page = render_to_string("console/parts/refusal.html", {"refusal": told})
    assert "&lt;script&gt; is no tag." in page
    assert render_to_string("console/parts/refusal.html", {}).strip() == ""


# Names of jobs.


@pytest.mark.parametrize(("number", "slot"), [(1, 1), (10, 10), (11, 1), (4827, 7)])
def test_a_runs_colour_follows_from_its_number(number: int, slot: int):
    assert run_slot(number) == slot
    assert handle(number) == f"J-{number}"


def test_an_amount_somebody_chose_has_cents_only_if_it_has_some():
    assert money_whole(Decimal("900.000000"), "EUR") == "€900"
    assert money_whole(Decimal("1234.5"), "EUR") == "€1,234.50"


# Search.


def test_the_search_finds_jobs_by_name_number_id_and_tag(story: Story):
    job = make_job(story.alice, name="gripper study")
    with platform_scope():
        job.tags.create(tenant=story.alice.tenant, name="paper")
    for query in ("gripper", "GRIPPER stu", f"J-{job.number}", str(job.pk), "paper"):
        page = story.alice.browser().get("/search/", {"q": query}, **HTMX).content.decode()
        assert f"/jobs/{job.pk}/" in page, query


def test_the_search_finds_nothing_of_another_lab(story: Story):
    job = make_job(story.alice, name="gripper study")
    DatasetFactory(tenant=story.alice.tenant, name="gripper drives")
    for query in ("gripper", str(job.pk), "J-1"):
        page = story.charlie.browser().get("/search/", {"q": query}, **HTMX).content.decode()
        assert "Nothing found" in page, query


def test_the_search_shows_no_datasets_to_who_may_not_read_them(story: Story):
    DatasetFactory(tenant=story.alice.tenant, name="gripper drives")
    assert b"gripper drives" in story.alice.browser().get("/search/?q=gripper").content
    assert b"gripper drives" not in bookkeeper_of(story.alice).get("/search/?q=gripper").content


@pytest.mark.parametrize("query", ["q=%00", "q=%ED%A0%80", "q=" + "x" * 3000, "q=%25_", "nonsense=1", ""])
def test_no_query_breaks_the_search(story: Story, query: str):
    assert story.alice.browser().get(f"/search/?{query}").status_code == 200


def test_the_search_shows_a_few_and_asks_the_same_number_of_times(story: Story, django_assert_num_queries: Any):
    browser, counts = story.alice.browser(), []
    for _ in range(2):
        for _ in range(4):
            make_job(story.alice, name="gripper study")
        with CaptureQueriesContext(connection) as asked:
            page = browser.get("/search/?q=gripper", **HTMX).content.decode()
        counts.append(len(asked))
    assert page.count('href="/jobs/') == 7  # six, and all of them
    assert counts[0] == counts[1]


def test_a_job_whose_name_is_markup_is_found_as_text(story: Story):
    make_job(story.alice, name="<img src=x onerror=alert(1)>")
    page = page_of(story.alice, "/search/?q=onerror")
    assert "<img" not in page
    assert "&lt;img src=x" in page
