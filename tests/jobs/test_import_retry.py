"""An import that was given up: the job says so, and its tenant can have it tried again."""

import hashlib
from typing import Any

import pytest

from jobs.services.dataset_import import TRIES_MAX, import_run
from joynexus_client import Conflict, Invalid
from tests.jobs.test_client import client_of
from tests.support.dataset_imports import import_of, pass_time, recorded, versions, waiting_messages
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import start_policy_job
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_storage(tmp_path: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.JOYNEXUS_DATASET_ROOT = tmp_path
    monkeypatch.setattr("tenants.datasets.services.nudge_validation", lambda version_id: None)


def test_what_was_given_up_is_seen_on_the_job_and_taken_in_when_its_tenant_asks_again(
    alice: Person, viewer: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    job, artifact_id = recorded(alice, runtime)
    address = f"/api/v1/jobs/{job.pk}"
    name = import_of(artifact_id).artifact.runtime_key
    content = runtime.artifacts.pop(name)  # the runtime has lost it
    for _ in range(TRIES_MAX):
        import_run(artifact_id, runtime=runtime)
        pass_time(artifact_id)
    told_now = viewer.api.get(address).json()["dataset_import"]
    assert (told_now["state"], told_now["attempts"], told_now["version_id"]) == ("failed", TRIES_MAX, None)
    assert told_now["reason"]
    assert viewer.api.post(f"{address}/dataset-import").status_code == 403
    assert charlie.api.post(f"{address}/dataset-import").status_code == 404
    asked = waiting_messages(artifact_id)
    for _ in range(2):  # repeating is harmless
        answer = alice.api.post(f"{address}/dataset-import")
        assert (answer.status_code, answer.json()["dataset_import"]["state"]) == (202, "waiting")
    assert waiting_messages(artifact_id) == asked + 1
    import_run(artifact_id, runtime=runtime)
    assert import_of(artifact_id).state == "waiting"  # the first of a whole round of tries
    runtime.artifacts[name] = content
    pass_time(artifact_id)
    import_run(artifact_id, runtime=runtime)
    (version,) = versions(job)
    done = alice.api.post(f"{address}/dataset-import").json()["dataset_import"]
    assert (done["state"], done["reason"], done["version_id"]) == ("imported", "", str(version.pk))


def test_an_import_given_up_early_gets_a_whole_round_of_tries_too(
    alice: Person, runtime: InMemoryRuntime, settings: Any
) -> None:
    job, artifact_id = recorded(alice, runtime, sha256=hashlib.sha256(b"other").hexdigest())
    settings.JOYNEXUS_UPLOAD_MAX_BYTES = 10
    import_run(artifact_id, runtime=runtime)
    assert import_of(artifact_id).state == "failed"
    settings.JOYNEXUS_UPLOAD_MAX_BYTES = 10**6
    assert alice.api.post(f"/api/v1/jobs/{job.pk}/dataset-import").status_code == 202
    for _ in range(TRIES_MAX + 1):
        import_run(artifact_id, runtime=runtime)
        pass_time(artifact_id)
    assert (import_of(artifact_id).state, import_of(artifact_id).attempts) == ("failed", 2 * TRIES_MAX)


def test_a_job_that_recorded_nothing_has_no_import_to_retry(alice: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_policy_job(alice, runtime, "evaluation")
    assert alice.api.get(f"/api/v1/jobs/{job.pk}").json()["dataset_import"] is None
    answer = alice.api.post(f"/api/v1/jobs/{job.pk}/dataset-import")
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (409, "no-recording")


def test_the_client_says_that_it_was_given_up_and_asks_again(
    alice: Person, runtime: InMemoryRuntime, settings: Any
) -> None:
    job, artifact_id = recorded(alice, runtime)
    client, settings.JOYNEXUS_UPLOAD_MAX_BYTES = client_of(alice), 10
    import_run(artifact_id, runtime=runtime)
    with pytest.raises(Invalid, match=r"import_failed.*at most 10 bytes"):
        client.jobs.wait_recorded(str(job.pk))
    settings.JOYNEXUS_UPLOAD_MAX_BYTES = 10**6
    assert client.jobs.retry_import(str(job.pk))["dataset_import"]["state"] == "waiting"
    import_run(artifact_id, runtime=runtime)
    assert client.jobs.wait_recorded(str(job.pk)) == str(versions(job)[0].pk)
    with pytest.raises(Conflict):
        client.jobs.retry_import(str(start_policy_job(alice, runtime, "rl")[0].pk))
