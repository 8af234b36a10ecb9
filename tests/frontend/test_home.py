"""The home page: what runs, waits, has ended and needs attention, and how to begin."""

import json
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from frontend.home.running import smoothed, spark_path
from frontend.home.snippets import first_job, snippets
from gpu_runtime.protocol.messages import MetricsRecorded, WorkloadState
from jobs.models import Job, RuntimeSnapshot
from tenants.billing.models import Budget, BudgetAlert
from tenants.billing.usage.periods import month_of
from tenants.scope import platform_scope
from tenants.webhooks.models import WebhookEndpoint
from tests.support.factories import DatasetVersionFactory, MembershipFactory
from tests.support.jobs import make_job, make_version, relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

HTMX = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    own = InMemoryRuntime()
    monkeypatch.setattr("jobs.runtime_client.connect", lambda: own)
    return own


def home_of(person: Person, **headers: str) -> str:
    return person.browser().get("/", **headers).content.decode()


def words(page: str) -> str:
    """The text of a page, spaces made one."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)).replace("\u00a0", " ")


def put(job: Job, **fields: Any) -> Job:
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(**fields)
    return reread(job)


def run_job(person: Person, runtime: InMemoryRuntime, steps: int = 3, **fields: Any) -> Job:
    job, key = start_job(person, runtime, **fields)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    for step in range(1, steps + 1):
        runtime.tell(*key, MetricsRecorded(step=step, values={"train/loss": 1.0 / step, "lr": 1e-4}))
    relay_all(runtime)
    return reread(job)


# A lab that has run nothing yet.


def test_a_new_lab_is_taught_how_to_begin(story: Story):
    page = words(home_of(story.alice))
    assert "Three steps to a first policy" in page
    assert "Nothing has run yet in Alice's lab" in page.replace("&#x27;", "'")
    assert "Nothing does" in page


def test_who_may_not_submit_is_shown_neither_steps_nor_snippets(story: Story):
    page = home_of(story.viewer)
    assert "Three steps" not in page
    assert "data-snippets" not in page
    assert "Jobs of your lab appear here" in page


def test_the_first_job_takes_the_place_of_the_lesson(story: Story):
    make_job(story.alice)
    assert "Three steps" not in home_of(story.alice, **HTMX)


def test_the_snippet_names_the_labs_own_dataset_and_its_job_is_admitted(story: Story):
    version = make_version(story.alice)
    curl, python = snippets(story.alice.tenant, "http://here", version)
    body = json.loads(curl.code.split("-d '")[1].rstrip("'"))
    assert body == first_job(version)
    assert body["dataset"]["id"] == str(version.pk)
    estimate = story.alice.api.post("/api/v1/jobs/estimate", body)
    assert estimate.status_code == 200, estimate.content
    compile(python.code, "snippet", "exec")
    assert str(version.pk) in python.code


def test_without_a_dataset_the_snippets_begin_with_an_upload(story: Story):
    curl, python = snippets(story.alice.tenant, "http://here", None)
    assert "--data-binary @recording.zip" in curl.code
    assert 'version["id"]' in python.code
    compile(python.code, "snippet", "exec")


def test_a_name_of_several_lines_stays_in_its_comment(story: Story):
    story.alice.tenant.name = "Lab\nrm -rf /"
    for one in snippets(story.alice.tenant, "http://here", None):
        assert one.code.splitlines()[0].startswith("# Labrm -rf /")


# Work.


def test_a_running_job_shows_progress_course_and_figure(alice: Person, runtime: InMemoryRuntime):
    job = run_job(alice, runtime, steps=5, name="first study")
    put(job, step=5, total_steps=20)
    page = home_of(alice)
    assert f'href="/jobs/{job.pk}/"' in page
    told = words(page)
    assert "Running now" in told
    assert "5 of 20 steps" in told
    assert "loss, smoothed" in told
    assert re.search(r'<path d="M0\.0 1\.0L', page)  # the first loss is the highest
    assert "1 of" in told


def test_a_waiting_job_says_why_and_its_place(alice: Person):
    first, second = make_job(alice, name="one"), make_job(alice, name="two")
    put(second, message="Your lab runs as many jobs as it may.")
    told = words(home_of(alice))
    assert "Your lab runs as many jobs as it may." in told
    assert "2 of 2 in line" in told
    assert told.index("one") < told.index("two")
    assert first.number < second.number


def test_what_ended_last_is_first(alice: Person):
    now = timezone.now()
    for ago, name in ((3, "older one"), (1, "newest one")):
        put(make_job(alice, name=name), state="succeeded", finished_at=now - timedelta(hours=ago))
    told = words(home_of(alice)).split("Recently ended")[1]
    assert told.index("newest one") < told.index("older one")


def test_the_page_of_another_lab_knows_nothing_of_it(alice: Person, charlie: Person, runtime: InMemoryRuntime):
    run_job(alice, runtime, name="secret plan")
    make_job(alice, name="secret plan two")
    put(make_job(alice, name="secret plan three"), state="failed", finished_at=timezone.now(), message="secret")
    assert "secret" not in home_of(charlie)


def test_a_name_that_is_markup_is_text(alice: Person, runtime: InMemoryRuntime):
    run_job(alice, runtime, name="<img src=x onerror=alert(1)>")
    put(make_job(alice, name="<img two>"), state="failed", finished_at=timezone.now(), message="<img three>")
    assert "<img" not in home_of(alice)


def test_the_part_is_what_changes_and_nothing_of_the_frame(alice: Person):
    make_job(alice)
    part = home_of(alice, **HTMX)
    assert "<html" not in part
    assert "Start from a shell" not in part
    for key in ("home-said", "home-tiles", "home-attention"):
        assert f'id="{key}" hx-swap-oob="innerHTML"' in part


def test_home_asks_the_same_number_of_times_however_many_jobs_there_are(alice: Person, runtime: InMemoryRuntime):
    browser, counts = alice.browser(), []
    for _ in range(2):
        for _ in range(2):
            run_job(alice, runtime)
            make_job(alice)
            put(make_job(alice), state="failed", finished_at=timezone.now())
        browser.get("/", **HTMX)
        with CaptureQueriesContext(connection) as asked:
            assert browser.get("/", **HTMX).status_code == 200
        counts.append(len(asked))
    assert counts[0] == counts[1]
    assert counts[0] < 50


# Attention.


def attention_of(browser: Client) -> str:
    part = browser.get("/", **HTMX).content.decode()
    return words(part.split('id="home-attention"')[1])


def test_a_failed_job_asks_for_attention_until_it_is_archived_or_old(alice: Person):
    job = put(make_job(alice, name="fragile"), state="failed", finished_at=timezone.now(), message="NaN at step 37")
    assert "fragile failed" in attention_of(alice.browser())
    assert "NaN at step 37" in attention_of(alice.browser())
    put(job, archived_at=timezone.now())
    assert "fragile" not in attention_of(alice.browser())
    put(job, archived_at=None, finished_at=timezone.now() - timedelta(days=8))
    assert "fragile" not in attention_of(alice.browser())


def test_a_budget_that_is_nearly_used_up_asks_for_attention(alice: Person):
    with platform_scope():
        budget = Budget.objects.create(tenant=alice.tenant, amount=100, hard=True)
        told = {"tenant": alice.tenant, "budget": budget, "month": month_of(timezone.now()), "spent": 81}
        BudgetAlert.objects.create(**told, percent=50)
        assert "Budget of the lab" not in attention_of(alice.browser())
        BudgetAlert.objects.create(**told, percent=80)
    assert "Budget of the lab at 80 %" in attention_of(alice.browser())
    assert "Jobs stop when it is used up." in attention_of(alice.browser())


def test_a_job_near_its_cap_asks_for_attention(alice: Person, runtime: InMemoryRuntime):
    job, key = start_job(alice, runtime, name="dear")
    runtime.tell_state(*key, WorkloadState.RUNNING)
    runtime.train_step([key], 1, busy_us=2_000_000)
    relay_all(runtime)
    cost = Decimal(alice.api.get(f"/api/v1/jobs/{job.pk}").json()["cost"]["amount"])
    put(job, spec=job.spec | {"budget": {"max_cost": str(cost * 2)}})
    assert "dear is near its cap" not in attention_of(alice.browser())
    put(job, spec=job.spec | {"budget": {"max_cost": str(cost)}})
    assert "dear is near its cap" in attention_of(alice.browser())


def test_a_dataset_that_cannot_be_used_asks_for_attention_until_a_newer_version_can(alice: Person):
    broken = make_version(alice, state="invalid", reason="Gripper value above 1.0.")
    assert "Gripper value above 1.0." in attention_of(alice.browser())
    DatasetVersionFactory(dataset=broken.dataset)
    assert "Gripper" not in attention_of(alice.browser())


def test_a_webhook_that_fails_is_told_to_who_may_manage_it(alice: Person, bob: Person):
    with platform_scope():
        own = {"url": "https://hooks.example/a", "secret": "x", "failing_since": timezone.now()}
        endpoint = WebhookEndpoint.objects.create(tenant=alice.tenant, **own)
    assert "hooks.example" in attention_of(alice.browser())
    assert "hooks.example" not in attention_of(bob.browser())  # a researcher
    with platform_scope():
        WebhookEndpoint.objects.filter(pk=endpoint.pk).update(disabled_at=timezone.now())
    assert "is switched off" in attention_of(alice.browser())


@pytest.mark.parametrize(
    ("status", "ago_s", "told"),
    [
        ({"accepting": True}, 1, "Nothing does"),
        ({"accepting": False, "reason": "disk is full"}, 1, "disk is full"),
        ({"accepting": True}, 60, "Runtime not reachable"),
    ],
)
def test_a_runtime_that_takes_no_work_asks_for_attention(
    alice: Person, runtime: InMemoryRuntime, status: dict[str, Any], ago_s: int, told: str
):
    body = runtime.status().model_dump(mode="json") | status
    RuntimeSnapshot.objects.create(journal_id="own", status=body, seen_at=timezone.now() - timedelta(seconds=ago_s))
    assert told in attention_of(alice.browser())


def test_a_bookkeeper_sees_money_and_jobs_but_no_runtime(alice: Person):
    browser = Client()
    browser.force_login(MembershipFactory(tenant=alice.tenant, role="billing").user)
    make_job(alice, name="first study")
    told = words(browser.get("/").content.decode())
    assert "first study" in told
    assert "Your share of device time" not in told
    assert "New job" not in told


# Pictures.


def test_a_spark_goes_through_the_newest_value_and_fills_its_height():
    assert spark_path([]) == spark_path([1.0]) == ""
    assert spark_path([0.0, 1.0]) == "M0.0 23.0L100.0 1.0"
    assert spark_path([2.0, 2.0]) == "M0.0 12.0L100.0 12.0"
    long = spark_path([float(value) for value in range(1000)])
    assert long.count("L") <= 80
    assert long.endswith("100.0 1.0")


def test_smoothing_keeps_a_constant_and_follows_a_step_slowly():
    assert smoothed([3.0, 3.0, 3.0]) == pytest.approx((3.0, 3.0, 3.0))
    assert 0.0 < smoothed([0.0] * 10 + [1.0])[-1] < 0.5
