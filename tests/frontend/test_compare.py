"""Several jobs side by side: which, how good, whether a difference is one, and what sets them apart."""

import csv
import io
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from frontend.comparison import COMPARED_MAX, compared, two_sided_p, verdict
from frontend.parameters import ABSENT, parameters
from gpu_runtime.protocol.messages import MetricsRecorded, WorkloadState
from jobs.models import Artifact, Job
from jobs.selectors.jobs import artifact_list
from jobs.services.dispatch import job_dispatch
from jobs.services.submit import job_submit
from tenants.scope import platform_scope
from tests.support import console
from tests.support.jobs import make_job, relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Story

pytestmark = pytest.mark.django_db


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    own = InMemoryRuntime()
    monkeypatch.setattr("jobs.runtime_client.connect", lambda: own)
    return own


def address(*jobs: Job | str) -> str:
    return "/jobs/compare/?" + "&".join(f"job={getattr(job, 'pk', job)}" for job in jobs)


def trained(story: Story, runtime: InMemoryRuntime, name: str) -> tuple[Job, Artifact]:
    """A job of Alice's that has published its policy."""
    job, key = start_job(story.alice, runtime, name=name)
    made = console.adapter_of(str(job.pk), version=200)
    runtime.artifacts[made.told.artifact_id] = made.content
    runtime.tell(*key, made.told)
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=200, total_steps=200)
    relay_all(runtime)
    return job, artifact_list(story.alice.tenant, job.pk).get()


def evaluated(story: Story, runtime: InMemoryRuntime, policy: Artifact, *, episodes: int) -> Job:
    """An evaluation of that policy whose report has arrived."""
    spec = console.evaluation_spec(str(policy.pk), tasks=console.TASKS[:1])
    job = job_submit(tenant=story.alice.tenant, actor=story.alice.actor, spec=spec)
    job_dispatch(job.pk, runtime=runtime)
    runtime.tell_state(str(job.pk), 1, WorkloadState.RUNNING, total_steps=job.total_steps)
    runtime.tell(str(job.pk), 1, console.report_of(str(job.pk), episodes=episodes).told)
    relay_all(runtime)
    return job


def test_jobs_are_shown_in_the_order_of_the_address_and_each_once(story: Story):
    one, other = make_job(story.alice, name="first"), make_job(story.alice, name="second")
    text = story.bob.browser().get(address(other, one, other)).content.decode()
    assert "Compare 2 jobs" in text
    table = text[text.index('aria-label="Results"') :]
    assert table.index("second") < table.index("first")


@pytest.mark.parametrize("path", ["/jobs/compare/", "/jobs/compare/csv/"])
def test_archived_jobs_can_be_compared_with_others(story: Story, path: str):
    now, before = make_job(story.alice, name="now"), make_job(story.alice, name="before")
    with platform_scope():
        Job.objects.filter(pk=before.pk).update(state="failed", finished_at=timezone.now(), archived_at=timezone.now())
    answer = story.bob.browser().get(f"{path}?job={now.pk}&job={before.pk}")
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/jobs/compare/", "/jobs/compare/csv/"])
def test_another_tenants_job_a_missing_one_and_no_id_are_the_same_missing_page(story: Story, path: str):
    own, foreign = make_job(story.alice), make_job(story.charlie)
    browser = story.alice.browser()
    answers = [browser.get(f"{path}?job={own.pk}&job={other}") for other in (foreign.pk, uuid.uuid4(), "nonsense")]
    assert [answer.status_code for answer in answers] == [404, 404, 404]
    assert len({answer.content for answer in answers}) == 1


def test_of_more_than_ten_jobs_the_first_ten_are_shown_and_the_page_says_so(story: Story):
    jobs = [make_job(story.alice, name=f"job {number}") for number in range(COMPARED_MAX + 2)]
    text = story.alice.browser().get(address(*jobs)).content.decode()
    assert f"Compare {COMPARED_MAX} jobs" in text
    assert "12 were asked for; the first 10 are shown" in text


def test_without_a_job_the_page_says_how_to_choose(story: Story):
    assert b"No job is chosen" in story.alice.browser().get("/jobs/compare/").content


def test_a_colour_that_is_taken_is_dashed(story: Story):
    jobs = [make_job(story.alice) for _ in range(COMPARED_MAX + 1)]
    rows = compared(story.alice.tenant, [jobs[0].pk, jobs[1].pk, jobs[COMPARED_MAX].pk])
    assert [row.repeats for row in rows] == [False, False, True]


def test_a_trained_job_is_judged_by_the_newest_evaluation_of_its_policy(story: Story, runtime: InMemoryRuntime):
    job, policy = trained(story, runtime, "learner")
    evaluated(story, runtime, policy, episodes=10)
    newest = evaluated(story, runtime, policy, episodes=20)
    alone, _ = trained(story, runtime, "never judged")
    judged, unjudged = compared(story.alice.tenant, [job.pk, alone.pk])
    assert judged.evaluated_by is not None
    assert judged.evaluated_by.pk == newest.pk
    assert judged.at_end is not None
    assert judged.at_end.episodes == 19  # of 20, one was solved before it began
    assert (unjudged.at_end, unjudged.evaluated_by) == (None, None)
    assert verdict([judged, unjudged]) is None
    (itself,) = compared(story.alice.tenant, [newest.pk])
    assert verdict([judged, itself]) is None, "one report is no two results"


def test_the_two_best_evaluations_are_judged(story: Story, runtime: InMemoryRuntime):
    jobs = []
    for name, episodes in (("one", 10), ("other", 20)):
        job, policy = trained(story, runtime, name)
        evaluated(story, runtime, policy, episodes=episodes)
        jobs.append(job)
    told = verdict(compared(story.alice.tenant, [job.pk for job in jobs]))
    assert told is not None
    assert {told.best.name, told.second.name} == {"one", "other"}
    assert not told.significant
    assert sorted(told.episodes) == [9, 19]
    assert "that is not significant" in story.alice.browser().get(address(*jobs)).content.decode()


def test_the_number_of_queries_does_not_depend_on_the_number_of_jobs(story: Story, runtime: InMemoryRuntime):
    jobs = []
    for number in range(6):
        job, policy = trained(story, runtime, f"learner {number}")
        evaluated(story, runtime, policy, episodes=10)
        jobs.append(job)
    browser, counts = story.alice.browser(), []
    browser.get(address(*jobs))  # what is kept for a while is read once
    for shown in (jobs[:2], jobs):
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert browser.get(address(*shown)).status_code == 200
        counts.append(len(seen))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [
        ((357, 500), (338, 500), 0.192),  # a two-proportion z-test by hand: z = 1.305
        ((10, 20), (10, 20), 1.0),
        ((0, 20), (0, 20), 1.0),
        ((20, 20), (0, 20), 2.5e-10),
    ],
)
def test_p_values_are_those_of_the_two_proportion_test(one: tuple[int, int], other: tuple[int, int], p: float):
    assert two_sided_p(one, other) == pytest.approx(p, rel=0.02)
    assert two_sided_p(other, one) == two_sided_p(one, other)


def test_settings_that_differ_are_found_also_where_one_job_lacks_them(story: Story):
    specs: list[dict[str, Any]] = [
        {"kind": "sft", "name": "a", "head": {"type": "mlp", "width": 64}, "training": {"lr": 1e-4, "steps": 10}},
        {"kind": "sft", "name": "b", "head": {"type": "mlp"}, "training": {"lr": 1.0000001e-4, "steps": 10}},
    ]
    rows = {row.path: row for row in parameters(specs)}
    assert "name" not in rows
    assert rows["head.width"].values == ("64", ABSENT)
    assert {path for path, row in rows.items() if row.differs} == {"head.width", "training.lr"}


def test_lists_of_groups_are_taken_apart_and_plain_lists_are_one_setting():
    rows = {
        row.path: row.values
        for row in parameters([{"environments": [{"id": "A"}, {"id": "B"}], "cameras": ["x", "y"]}])
    }
    assert rows == {"environments[0].id": ("A",), "environments[1].id": ("B",), "cameras": ("x, y",)}


def test_the_csv_has_every_point_of_every_job(story: Story, runtime: InMemoryRuntime):
    jobs = []
    for name in ("=one", "two"):
        job, key = start_job(story.alice, runtime, name=name)
        for step in range(1, 4):
            runtime.tell(*key, MetricsRecorded(step=step, values={"train/loss": 1 / step}))
        jobs.append(job)
    relay_all(runtime)
    answer = story.viewer.browser().get(address(*jobs).replace("compare/", "compare/csv/"))
    rows = list(csv.DictReader(io.StringIO(b"".join(answer).decode())))  # type: ignore[arg-type]
    assert [(row["name"], row["step"], row["series"]) for row in rows] == [
        (name, str(step), "train/loss") for name in ("'=one", "two") for step in range(1, 4)
    ]
    assert {row["number"] for row in rows} == {"1", "2"}
