"""Operators see every tenant in Django's admin and cannot rewrite money; tenants never get in."""

import html
import re
from datetime import timedelta

import pytest
from django.test import Client

from jobs.models import Artifact, Job, PolicyVersion
from tenants.scope import platform_scope
from tests.support.factories import moment
from tests.support.jobs import make_job
from tests.support.story import Person, Story
from tests.support.usage import ingest

PAGES = [
    "tenants/tenant",
    "tenants/user",
    "tenants/membership",
    "tenants/apikey",
    "datasets/datasetversion",
    "billing/priceversion",
    "billing/usageevent",
    "billing/ratedusage",
]


@pytest.mark.parametrize("page", PAGES)
def test_an_operator_sees_the_rows_of_every_tenant(operator: Client, story: Story, page: str):
    ingest(story.alice.tenant)
    ingest(story.charlie.tenant)
    answer = operator.get(f"/admin/{page}/")
    assert answer.status_code == 200
    if page in {"tenants/membership", "billing/usageevent"}:
        assert b"Alice&#x27;s lab" in answer.content
        assert b"Charlie&#x27;s lab" in answer.content


@pytest.mark.parametrize("page", PAGES[5:])
def test_money_can_not_be_changed_or_deleted(operator: Client, alice: Person, page: str):
    event = ingest(alice.tenant)[0]
    pk = {"priceversion": event.rated.price_id, "usageevent": event.pk, "ratedusage": event.rated.pk}
    row = pk[page.split("/")[1]]
    assert operator.get(f"/admin/{page}/{row}/change/").status_code == 200
    assert operator.post(f"/admin/{page}/{row}/change/", {"amount": "0"}).status_code == 403
    assert operator.post(f"/admin/{page}/{row}/delete/", {"post": "yes"}).status_code == 403


def test_the_secret_of_a_key_is_not_shown(operator: Client, alice: Person):
    page = operator.get(f"/admin/tenants/apikey/{alice.key_row.pk}/change/").content.decode()
    assert alice.key_row.prefix in page
    assert alice.key_row.secret_sha256 not in page


def test_the_owner_of_a_tenant_is_no_operator(alice: Person):
    answer = alice.browser().get("/admin/tenants/tenant/")
    assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/admin/login/")


def publish(job: Job, model: str, number: int) -> None:
    """One row named by its number; a higher number is newer."""
    common = {"tenant": job.tenant, "job": job, "attempt": 1, "sha256": "0" * 64}
    common["created_at"] = moment("2026-01-01T00:00:00") + timedelta(seconds=number)
    name = f"row-{number}"
    with platform_scope():
        if model == "policyversion":
            PolicyVersion.objects.create(version=number, step=number, checkpoint=name, **common)
        else:
            Artifact.objects.create(
                name=name,
                runtime_key=f"{job.pk}/{number}",
                kind="video",
                policy_version=1,
                size_bytes=1,
                manifest={},
                **common,
            )


@pytest.mark.parametrize("model", ["artifact", "policyversion"])
def test_a_jobs_page_shows_the_newest_twenty_and_links_to_all_of_that_job(operator: Client, story: Story, model: str):
    job, foreign = (make_job(person) for person in (story.alice, story.charlie))
    for number in range(45):
        publish(job, model, number)
    publish(foreign, model, 900)
    page = operator.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    shown = [int(number) for number in re.findall(r"<p>row-(\d+)</p>", page)]
    assert shown == list(range(44, 24, -1))
    link = re.search(rf'<a href="(/admin/jobs/{model}/[^"]+)">All 45</a>', page)
    assert link
    listed = operator.get(html.unescape(link[1])).content.decode()
    assert set(re.findall(r"row-(\d+)", listed)) == {str(number) for number in range(45)}
