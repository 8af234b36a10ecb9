"""Results on a job's page: films by version and seed, evaluations over versions, policies with their lineage."""

import json
import re
import uuid

import pytest
from django.test import Client

from frontend.videos import LAST_PICTURE_STEPS
from gpu_runtime.workflows import evaluation_trial
from jobs.services.retention import artifact_delete
from tests.support import console
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_pages import evaluated, films_in, html, publish, reinforced, relay_all, start, trained
from tests.support.story import Story

pytestmark = pytest.mark.django_db

SEEDS = ((7, "fail"), (8, "success"))


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    own = InMemoryRuntime()
    monkeypatch.setattr("jobs.runtime_client.connect", lambda: own)
    return own


def test_an_rl_job_shows_the_films_of_its_policies_and_of_its_start(story: Story, runtime):
    weak = trained(story.alice, runtime)
    better = reinforced(story.alice, runtime, weak)
    evaluated(story.alice, runtime, weak, films=SEEDS)
    evaluated(story.alice, runtime, better, films=SEEDS)
    other = trained(story.alice, runtime, name="another")
    evaluated(story.alice, runtime, other, films=((9, "success"),))
    path = f"/jobs/{better.job_id}/?tab=rollouts"
    assert set(films_in(html(story.alice, path))) == {
        *("version 60, seed 7", "version 60, seed 8", "the start, seed 7", "the start, seed 8")
    }
    assert set(films_in(html(story.alice, f"{path}&version=60"))) == {"version 60, seed 7", "version 60, seed 8"}
    assert films_in(html(story.alice, f"{path}&version=start&seed=7")) == ["the start, seed 7"]
    assert films_in(html(story.alice, f"{path}&version=200")) == []
    assert set(films_in(html(story.alice, f"{path}&outcome=success"))) == {"version 60, seed 8", "the start, seed 8"}
    sft = html(story.alice, f"/jobs/{weak.job_id}/?tab=rollouts")
    assert set(films_in(sft)) == {"version 200, seed 7", "version 200, seed 8"}


def test_films_of_the_same_start_stand_in_one_row(story: Story, runtime):
    weak = trained(story.alice, runtime)
    better = reinforced(story.alice, runtime, weak)
    evaluated(story.alice, runtime, weak, films=((7, "fail"),))
    evaluated(story.alice, runtime, better, films=SEEDS)
    page = html(story.alice, f"/jobs/{better.job_id}/?tab=rollouts&together=1")
    assert films_in(page) == ["the start, seed 7", "version 60, seed 7"]
    assert page.count("data-row-play") == 1
    alone = html(story.alice, f"/jobs/{better.job_id}/?tab=rollouts&together=1&seed=8")
    assert "No start was filmed twice" in alone


def test_films_come_page_by_page_and_no_page_number_breaks_them(story: Story, runtime):
    job, key = start(story.alice, runtime, console.evaluation_spec(str(trained(story.alice, runtime).pk)))
    for seed in range(30):
        publish(runtime, key, console.video_of(str(job.pk), b"film", seed=seed, outcome="success"))
    relay_all(runtime)
    path = f"/jobs/{job.pk}/videos/"
    assert [len(films_in(html(story.alice, f"{path}{query}"))) for query in ("", "?page=2")] == [24, 6]
    assert [len(films_in(html(story.alice, f"{path}?page={page}"))) for page in ("0", "99", "x")] == [24, 6, 24]
    assert 'data-page="2"' in html(story.alice, path)


def test_a_film_tells_its_step_of_the_limit(story: Story, runtime):
    job = evaluated(story.alice, runtime, trained(story.alice, runtime), films=((50_001, "success"),))
    page = html(story.alice, f"/jobs/{job.pk}/videos/")
    assert re.search(r"data-step-now>31 / 50<", page)


def test_a_films_last_picture_is_as_long_as_the_runtime_shows_it():
    assert LAST_PICTURE_STEPS == evaluation_trial._LAST_PICTURE_STEPS


def test_nothing_of_a_film_is_loaded_before_it_is_near(story: Story, runtime):
    job = evaluated(story.alice, runtime, trained(story.alice, runtime), films=SEEDS)
    videos = re.findall(r"<video[^>]*>", html(story.alice, f"/jobs/{job.pk}/?tab=rollouts"))
    assert len(videos) == 2
    assert all('preload="none"' in video and " src=" not in video for video in videos)


@pytest.mark.parametrize("tab", ["rollouts", "checkpoints", "evaluation"])
def test_a_tab_asks_as_often_for_many_evaluations_as_for_few(
    story: Story, runtime, tab, django_assert_max_num_queries
):
    better = reinforced(story.alice, runtime, trained(story.alice, runtime))
    browser, path = story.alice.browser(), f"/jobs/{better.job_id}/?tab={tab}"

    def queries() -> int:
        with django_assert_max_num_queries(60) as seen:
            assert browser.get(path).status_code == 200
        return len(seen)

    evaluated(story.alice, runtime, better, films=SEEDS)
    browser.get(path)
    few = queries()
    for _ in range(4):
        evaluated(story.alice, runtime, better, films=SEEDS)
    assert queries() <= few + 2  # the frame reads some things anew after a while


def test_evaluations_over_versions_are_a_figure_and_a_table(story: Story, runtime):
    weak = trained(story.alice, runtime)
    better = reinforced(story.alice, runtime, weak)
    evaluated(story.alice, runtime, weak)
    evaluated(story.alice, runtime, better)
    page = html(story.alice, f"/jobs/{better.job_id}/?tab=evaluation")
    assert re.findall(r'data-figure="([^"]+)"', page) == ["success-once", "success-at-end"]
    rate = console.evaluation_report().overall.success_once
    for words in ("Version 60", "The start", f"{rate.rate * 100:.1f}\u00a0%", f"{rate.successes} of {rate.episodes}"):
        assert words in page
    assert f"{rate.low * 100:.1f}–{rate.high * 100:.1f}" in page


def test_of_several_evaluations_of_a_version_the_newest_is_the_last(story: Story, runtime):
    weak = trained(story.alice, runtime)
    for name in ("first", "second", "third"):
        evaluated(story.alice, runtime, weak, name=name)
    page = html(story.alice, f"/jobs/{weak.job_id}/?tab=evaluation")
    words = re.search(r'id="words-success-once">([^<]+)<', page)
    assert words
    assert re.search(r"3 evaluations, the last version 200: .* third\.$", words[1])
    drawn = json.loads(page.partition('id="success-once" type="application/json">')[2].partition("</script>")[0])
    way, dots = drawn["data"]
    assert (len(way["x"]), len(dots["x"])) == (1, 3)  # the line takes one per version, and all are dots


def test_an_evaluation_under_way_is_in_the_table_without_a_figure(story: Story, runtime):
    weak = trained(story.alice, runtime)
    start(story.alice, runtime, console.evaluation_spec(str(weak.pk)))
    page = html(story.alice, f"/jobs/{weak.job_id}/?tab=evaluation")
    assert "under way" in page
    assert "data-figure" not in page


def test_checkpoints_show_lineage_both_ways_and_the_file_even_after_it_is_deleted(story: Story, runtime):
    weak = trained(story.alice, runtime)
    better = reinforced(story.alice, runtime, weak)
    check = evaluated(story.alice, runtime, better)
    path = f"/jobs/{better.job_id}/?tab=checkpoints"
    page = html(story.alice, path)
    assert f'href="/policies/{weak.pk}/"' in page
    assert f'href="/jobs/{check.pk}/"' in page
    assert f'id="delete-{better.pk}"' in page
    artifact_delete(actor=story.alice.actor, artifact_id=better.pk)
    page = html(story.alice, path)
    assert "deleted" in page
    assert f"delete-{better.pk}" not in page
    assert f"/api/v1/artifacts/{better.pk}/download" not in page.split('id="policies"')[1]


def test_only_who_may_write_is_offered_to_delete(story: Story, runtime):
    weak = trained(story.alice, runtime)
    page = html(story.viewer, f"/jobs/{weak.job_id}/?tab=checkpoints")
    assert f"delete-{weak.pk}" not in page
    assert "policy=" not in page


@pytest.mark.parametrize("tab", ["rollouts", "checkpoints", "evaluation"])
def test_a_foreign_jobs_results_are_a_missing_page(story: Story, runtime, tab):
    weak = trained(story.alice, runtime)
    charlie: Client = story.charlie.browser()
    foreign, missing = charlie.get(f"/jobs/{weak.job_id}/?tab={tab}"), charlie.get(f"/jobs/{uuid.uuid4()}/?tab={tab}")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content
