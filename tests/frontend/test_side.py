"""The side of a job's page: its bill, what it made, the recording on its way to a dataset and what hinders it."""

from typing import Any

import pytest

from frontend.views.job.page import EVENTS_SHOWN
from gpu_runtime.protocol.messages import LogWritten, WorkloadState
from jobs.services.dataset_import import import_run
from tests.support.dataset_imports import import_of, recorded
from tests.support.jobs import relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import start_policy_job
from tests.support.service_steps import predict_group, publish
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, settings: Any) -> InMemoryRuntime:
    own = InMemoryRuntime()
    settings.JOYNEXUS_DATASET_ROOT = tmp_path
    monkeypatch.setattr("jobs.runtime_client.connect", lambda: own)
    monkeypatch.setattr("tenants.datasets.services.nudge_validation", lambda version_id: None)
    return own


def made(person: Person, job: Any) -> str:
    answer = person.browser().get(f"/jobs/{job.pk}/made/")
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_recording_is_followed_until_it_is_a_dataset(story: Story, runtime: InMemoryRuntime):
    job, artifact_id = recorded(story.alice, runtime)
    page = made(story.alice, job)
    assert "being taken in" in page
    assert "data-under-way" in page
    import_run(artifact_id, runtime=runtime)
    page = made(story.alice, job)
    assert "pushes of our own, version 1</a>, received" in page
    assert "being taken in" not in page
    assert "data-under-way" in page  # until it is validated
    assert page in story.alice.browser().get(f"/jobs/{job.pk}/").content.decode()


def test_what_was_given_up_says_why_and_offers_another_try_to_those_who_may(story: Story, runtime, settings):
    job, artifact_id = recorded(story.alice, runtime)
    settings.JOYNEXUS_UPLOAD_MAX_BYTES = 10
    import_run(artifact_id, runtime=runtime)
    page = made(story.alice, job)
    for words in ("not taken in", "at most 10 bytes", "Take it in again"):
        assert words in page
    assert "data-under-way" not in page
    assert "Take it in again" not in made(story.viewer, job)
    path = f"/jobs/{job.pk}/import/"
    assert story.viewer.browser().post(path).status_code == 403
    assert story.charlie.browser().post(path).status_code == 404
    assert import_of(artifact_id).state == "failed"
    assert story.alice.browser().post(path)["Location"] == f"/jobs/{job.pk}/"
    assert import_of(artifact_id).state == "waiting"


def test_work_that_is_not_billed_is_said_with_its_reason_on_the_page_and_in_the_api(story: Story, runtime):
    job, key = start_policy_job(story.alice, runtime, "rl")
    predict_group(runtime, {key: 30}, busy_us=900_000)
    predict_group(runtime, {key: 12}, busy_us=500_000, billable=False, reason="redone_after_restart")
    relay_all(runtime)
    page = story.alice.browser().get(f"/jobs/{job.pk}/").content.decode()
    assert "Predicted chunks, 42" in page
    assert "12 free: done again after a restart" in page
    assert "0.5\u00a0s free: done again after a restart" in page
    lines = {line["meter"]: line for line in story.alice.api.get(f"/api/v1/jobs/{job.pk}").json()["cost"]["lines"]}
    assert lines["predict.chunks"]["free"] == [{"reason": "redone_after_restart", "quantity": 12}]


def test_many_films_do_not_push_the_other_events_off_the_page(story: Story, runtime: InMemoryRuntime):
    job, key = start_policy_job(story.alice, runtime, "evaluation")
    runtime.tell_state(*key, WorkloadState.RUNNING)
    runtime.tell(*key, LogWritten(level="info", message="as usual"))
    runtime.tell(*key, LogWritten(level="warning", message="a seat was lost"))
    for _ in range(EVENTS_SHOWN + 1):
        publish(runtime, key, "video", b"film", media_type="video/mp4")
    publish(runtime, key, "evaluation", b"{}", media_type="application/json")
    relay_all(runtime)
    page = story.alice.browser().get(f"/jobs/{job.pk}/").content.decode()
    events = page[page.index("data-events") :]
    for words in ("Queued", "Running", "a seat was lost", "Evaluation finished"):
        assert words in events
    assert "Video of an episode" not in events
    assert "as usual" not in events


def test_a_job_that_made_nothing_has_an_empty_hidden_card(story: Story, runtime: InMemoryRuntime):
    job, _ = start_job(story.alice, runtime)
    assert made(story.alice, job).strip() == ""
    page = story.alice.browser().get(f"/jobs/{job.pk}/").content.decode()
    assert f'data-made="/jobs/{job.pk}/made/" hidden' in page
    assert story.alice.browser().post(f"/jobs/{job.pk}/import/").status_code == 302
    assert story.charlie.browser().get(f"/jobs/{job.pk}/made/").status_code == 404
