"""Pages of every kind of job: charts, where a policy comes from, results, films, and what a foreign tenant sees."""

import re
import uuid
from typing import Any

import pytest

from frontend.charts import KIND_BOARDS, board_of
from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Artifact, Job
from jobs.selectors.jobs import artifact_list
from jobs.services.dispatch import job_dispatch
from jobs.services.submit import job_submit
from tests.support import console
from tests.support.jobs import relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

Key = tuple[str, int]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    own = InMemoryRuntime()
    monkeypatch.setattr("jobs.runtime_client.connect", lambda: own)
    return own


@pytest.fixture
def adapter(story: Story, runtime: InMemoryRuntime) -> Artifact:
    """A policy of Alice's, from an SFT job called "weak start"."""
    job, key = start_job(story.alice, runtime, name="weak start")
    publish(runtime, key, console.adapter_of(str(job.pk), version=200))
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=200, total_steps=200)
    relay_all(runtime)
    return artifact_list(story.alice.tenant, job.pk).get()


def publish(runtime: InMemoryRuntime, key: Key, published: console.Published) -> None:
    runtime.artifacts[published.told.artifact_id] = published.content
    runtime.tell(*key, published.told)


def start(person: Person, runtime: InMemoryRuntime, spec: dict[str, Any]) -> tuple[Job, Key]:
    job = job_submit(tenant=person.tenant, actor=person.actor, spec=spec)
    job_dispatch(job.pk, runtime=runtime)
    key = (str(job.pk), 1)
    runtime.tell_state(*key, WorkloadState.RUNNING, total_steps=job.total_steps)
    return reread(job), key


def evaluated(
    story: Story, runtime: InMemoryRuntime, adapter: Artifact, tasks: tuple[str, ...] = console.TASKS
) -> Job:
    """An evaluation of Alice's that has ended, with three films."""
    job, key = start(story.alice, runtime, console.evaluation_spec(str(adapter.pk), tasks=tasks))
    for metrics in console.evaluation_metrics(tasks):
        runtime.tell(*key, metrics)
    for seed, outcome in ((50_001, "success"), (50_000, "fail"), (50_004, "error")):
        publish(runtime, key, console.video_of(str(job.pk), b"film", seed=seed, outcome=outcome))
    publish(runtime, key, console.report_of(str(job.pk), tasks))
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=job.total_steps, total_steps=job.total_steps)
    relay_all(runtime)
    return reread(job)


def html(person: Person, path: str) -> str:
    answer = person.browser().get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def charts_in(page: str) -> list[str]:
    return re.findall(r'data-chart="([^"]+)"', page)


def test_every_kind_has_charts_with_ids_of_their_own():
    assert set(KIND_BOARDS) == {
        kind.model_fields["kind"].annotation.__args__[0] for kind in JobSpec.__args__[0].__args__
    }
    for board in KIND_BOARDS.values():
        ids = [chart.id for group in board.groups for chart in group.charts]
        assert len(set(ids)) == len(ids)
        assert all(chart.unit and chart.curves for group in board.groups for chart in group.charts)


def test_the_series_of_rl_charts_are_those_that_are_told():
    told = console.rl_metrics(1).values.keys()
    silent = {
        curve.series
        for group in board_of("rl").groups
        for chart in group.charts
        for curve in chart.curves
        if curve.series not in told
    }
    assert silent == {f"rollout/staleness/{age}" for age in range(2, 10)} | {"train/zero_advantage_fraction"}


@pytest.mark.parametrize(
    ("allowed", "labels"),
    [
        (0, ["0 behind"]),
        (2, ["0 behind", "1 behind", "2 behind"]),
        (8, [f"{age} behind" for age in range(9)]),
        (64, [*(f"{age} behind" for age in range(9)), "older"]),
    ],
)
def test_decisions_are_drawn_by_every_age_that_the_job_allows(allowed: int, labels: list[str]):
    groups = board_of("rl").for_spec({"collection": {"max_staleness": allowed}})
    ages = next(chart for group in groups for chart in group.charts if chart.id == "ages")
    assert [curve.label for curve in ages.curves] == labels
    drawn = {name for curve in ages.curves for name in (curve.series, *curve.more)}
    assert {f"rollout/staleness/{age}" for age in range(allowed + 1)} <= drawn


@pytest.mark.parametrize(
    ("algorithm", "there", "absent"),
    [
        ({"type": "ppo"}, {"explained", "value_loss", "clip"}, {"zero", "reference"}),
        ({"type": "ppo", "reference_kl": 0.1}, {"reference"}, {"zero"}),
        ({"type": "grpo", "group_size": 8}, {"zero", "clip"}, {"explained", "value_loss"}),
    ],
)
def test_an_rl_page_draws_what_its_algorithm_has(story: Story, runtime, adapter, algorithm, there, absent):
    job, _ = start(story.alice, runtime, console.rl_spec(str(adapter.pk), algorithm=algorithm))
    drawn = set(charts_in(html(story.alice, f"/jobs/{job.pk}/")))
    assert there | {"return", "success", "kl", "entropy", "gap", "stale", "dropped", "env_speed", "predict"} <= drawn
    assert not absent & drawn


def test_an_rl_page_says_what_it_starts_from_and_where_its_limits_are(story: Story, runtime, adapter):
    job, _ = start(story.alice, runtime, console.rl_spec(str(adapter.pk)))
    page = html(story.alice, f"/jobs/{job.pk}/")
    assert f'<a href="/jobs/{adapter.job_id}/">weak start</a>, version 200' in page
    assert '"limit": {"value": 0.03, "label": "target"}' in page
    assert '"limit": {"value": 2, "label": "bound"}' in page
    for words in ("PPO", "PushCube-v1", "versions", "Environment steps"):
        assert words in page


def test_a_policys_page_lists_the_jobs_that_start_from_it_with_their_success(story: Story, runtime, adapter):
    job = evaluated(story, runtime, adapter, console.TASKS[:1])
    page = html(story.alice, f"/jobs/{adapter.job_id}/?tab=checkpoints")
    assert 'aria-label="Started from it"' in page
    assert re.search(f'<a [^>]*href="/jobs/{job.pk}/">how good is it</a>', page)
    assert "57.9\u00a0% once of 19" in page


def test_the_list_shows_kind_environment_and_success(story: Story, runtime, adapter):
    job, key = start(story.alice, runtime, console.rl_spec(str(adapter.pk)))
    for version in range(1, 4):
        runtime.tell(*key, console.rl_metrics(version))
    relay_all(runtime)
    newest = console.rl_metrics(3).values["rollout/success_once"]
    page = html(story.alice, "/jobs/?kind=rl")
    for words in ("PushCube-v1", "PPO"):
        assert words in page
    assert f"{newest * 100:.1f}\u00a0%" in page
    assert str(job.pk) not in html(story.alice, "/jobs/?kind=sft")
    assert "weak start" in html(story.alice, "/jobs/?kind=sft")


def test_the_list_asks_as_often_for_many_jobs_of_all_kinds_as_for_one_each(
    story: Story, runtime, adapter, django_assert_max_num_queries
):
    browser = story.alice.browser()

    def queries(each: int) -> int:
        for spec in (console.rl_spec, console.evaluation_spec, console.rollout_spec) * each:
            start(story.alice, runtime, spec(str(adapter.pk)))
        relay_all(runtime)
        with django_assert_max_num_queries(50) as seen:
            assert browser.get("/jobs/").status_code == 200
        return len(seen)

    few = queries(1)
    assert queries(3) <= few + 2  # the frame reads some things anew after a while


def test_a_rollout_page_names_the_dataset_it_makes(story: Story, runtime, adapter):
    job, _ = start(story.alice, runtime, console.rollout_spec(str(adapter.pk)))
    page = html(story.alice, f"/jobs/{job.pk}/")
    assert "pushed by itself" in page
    assert "10, successes only" in page


def test_a_result_has_both_successes_with_intervals_by_task_and_suite(story: Story, runtime, adapter):
    page = html(story.alice, f"/jobs/{evaluated(story, runtime, adapter).pk}/")
    report = console.evaluation_report(console.TASKS)
    for rate in (report.tasks[0].success_once, report.tasks[0].success_at_end, report.overall.success_once):
        assert f"{rate.rate * 100:.1f}\u00a0%" in page
        assert f"{rate.low * 100:.1f}–{rate.high * 100:.1f}" in page
        assert f"{rate.successes} of {rate.episodes}" in page
    for words in ("Suite maniskill", "Suite libero_spatial", "All tasks", "3 errors", "1 solved at reset"):
        assert words in page
    assert "a step took longer than 30 s" in page
    assert report.tasks[0].protocol_hash in page
    assert "50000–50019 (20)" in page
    assert "mani_skill" in page


def test_an_evaluation_under_way_shows_no_result_and_awaits_films(story: Story, runtime, adapter):
    job, _ = start(story.alice, runtime, console.evaluation_spec(str(adapter.pk)))
    assert charts_in(html(story.alice, f"/jobs/{job.pk}/"))[:1] == ["success"]
    assert "No video yet" in html(story.alice, f"/jobs/{job.pk}/?tab=rollouts")
    page = html(story.alice, f"/jobs/{job.pk}/?tab=evaluation")
    assert "No report yet" in page
    assert "Success by task" not in page


def test_a_report_of_another_form_leaves_the_rest_of_the_page(story: Story, runtime, adapter):
    job, key = start(story.alice, runtime, console.evaluation_spec(str(adapter.pk)))
    publish(runtime, key, console.published("evaluation", "odd", b"{}", "application/json", manifest={"tasks": [1]}))
    relay_all(runtime)
    assert "The report cannot be shown" in html(story.alice, f"/jobs/{job.pk}/?tab=evaluation")
    assert "not in the form" in html(story.alice, f"/jobs/{job.pk}/episodes/")


def test_films_are_filtered_by_outcome_task_and_seed(story: Story, runtime, adapter):
    path = f"/jobs/{evaluated(story, runtime, adapter).pk}/videos/"

    def seeds(query: str) -> list[str]:
        return re.findall(r'data-title="[^"]*seed (\d+)', html(story.alice, path + query))

    assert seeds("") == ["50004", "50000", "50001"]
    assert seeds("?outcome=success") == ["50001"]
    assert seeds("?outcome=fail") == ["50000"]
    assert seeds("?seed=50004") == ["50004"]
    assert seeds("?task=PushCube-v1&outcome=error") == ["50004"]
    assert seeds("?task=libero_spatial/0") == []
    assert seeds("?version=60") == ["50004", "50000", "50001"]
    assert seeds("?version=59") == []


@pytest.mark.parametrize(
    "query",
    ["outcome=nonsense", "seed=%00", "seed=99999999999999", "version=-1", "page=1e9", "page=9999999999", "task=%00"],
)
def test_no_filter_breaks_the_gallery(story: Story, runtime, adapter, query):
    job = evaluated(story, runtime, adapter, console.TASKS[:1])
    assert "data-title" in html(story.alice, f"/jobs/{job.pk}/videos/?{query}")
    assert "data-title" in html(story.alice, f"/jobs/{job.pk}/?tab=rollouts&{query}")


def test_a_film_is_named_and_linked_where_the_api_serves_it(story: Story, runtime, adapter):
    job = evaluated(story, runtime, adapter, console.TASKS[:1])
    page = html(story.alice, f"/jobs/{job.pk}/videos/?outcome=success")
    film = artifact_list(story.alice.tenant, job.pk).get(kind="video", manifest__outcome="success")
    assert f'data-src="/api/v1/artifacts/{film.pk}/download"' in page
    assert 'aria-label="Play PushCube-v1, seed 50001, version 60, success"' in page
    assert "Push the cube to the goal." in page


def test_episodes_are_listed_by_outcome(story: Story, runtime, adapter):
    path = f"/jobs/{evaluated(story, runtime, adapter, console.TASKS[:1]).pk}/episodes/"
    page = html(story.alice, path)
    assert page.count("<tr>") == 1 + 20
    for words in ("All 20", "Success 11", "Step limit 7", "Error 1", "Solved at reset 1"):
        assert words in page
    page = html(story.alice, f"{path}?outcome=error")
    assert page.count("<tr>") == 1 + 1
    assert "a step took longer than 30 s" in page


def test_many_episodes_come_page_by_page(story: Story, runtime, adapter):
    path = f"/jobs/{evaluated(story, runtime, adapter).pk}/episodes/"
    assert html(story.alice, path).count("<tr>") == 1 + 25
    assert "Page 3 of 3" in html(story.alice, f"{path}?page=3")
    assert html(story.alice, f"{path}?page=nonsense").count("<tr>") == 1 + 25


def test_episodes_say_when_the_runtime_does_not_answer(story: Story, runtime, adapter):
    job = evaluated(story, runtime, adapter, console.TASKS[:1])
    runtime.down = True
    assert "does not answer" in html(story.alice, f"/jobs/{job.pk}/episodes/")
    assert html(story.alice, f"/jobs/{job.pk}/")  # the result needs no file


@pytest.mark.parametrize("part", ["", "videos/", "episodes/"])
def test_parts_of_a_foreign_job_are_missing_pages(story: Story, runtime, adapter, part):
    job = evaluated(story, runtime, adapter, console.TASKS[:1])
    foreign = story.charlie.browser().get(f"/jobs/{job.pk}/{part}")
    missing = story.charlie.browser().get(f"/jobs/{uuid.uuid4()}/{part}")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content
    assert story.viewer.browser().get(f"/jobs/{job.pk}/{part}").status_code == 200


def test_markup_in_a_manifest_stays_text(story: Story, runtime, adapter):
    job, key = start(story.alice, runtime, console.evaluation_spec(str(adapter.pk)))
    film = console.video_of(str(job.pk), b"film", seed=1, outcome="<script>alert(1)</script>", task="<img src=x>")
    publish(runtime, key, film)
    relay_all(runtime)
    page = html(story.alice, f"/jobs/{job.pk}/?tab=rollouts")
    assert "<script>alert" not in page
    assert "<img" not in page


def test_the_runtime_page_has_three_services_and_nobody_elses_figures(story: Story, runtime, adapter):
    tenant_id = str(story.alice.tenant.pk)
    for span in console.service_spans(tenant_id, runtime.now_us):
        runtime.tell(None, None, span)
    relay_all(runtime)
    page = html(story.alice, "/runtime/")
    assert re.findall(r'data-service="(\w+)"', page) == ["training", "inference", "environment"]
    for words in ("Seats in use", "Latency, p95", "Mean group size"):
        assert words in page
    assert "beef" not in page
