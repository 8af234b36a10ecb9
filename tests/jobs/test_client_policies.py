"""The Python client on jobs that start from a policy, against the real API: submit, reports, films, recordings."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from jobs.models import Artifact
from jobs.services.dataset_import import import_run
from jobs.services.dispatch import job_dispatch
from joynexus_client import ApiError, Conflict, Invalid, Timeout
from tenants.scope import platform_scope
from tests.jobs.test_client import client_of
from tests.jobs.test_files_api import FILM, REPORT
from tests.support.jobs import relay_all
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_spec
from tests.support.service_steps import publish, succeed
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def submit(person: Person, runtime: InMemoryRuntime, kind: str) -> tuple[str, tuple[str, int]]:
    """Through the client; then the runtime accepts it."""
    adapter = make_adapter(person)
    job = client_of(person).jobs.submit(make_policy_spec(kind, adapter))
    assert job["policy"] is not None
    assert job["policy"]["artifact_id"] == str(adapter.pk)
    runtime.artifacts[adapter.runtime_key] = b"PK"
    job_dispatch(job["id"], runtime=runtime)
    return job["id"], (job["id"], 1)


@pytest.mark.parametrize(
    ("kind", "environments"),
    [("rl", ["PushCube-v1"]), ("evaluation", ["PushCube-v1", "PickCube-v1"]), ("rollout", ["PushCube-v1"])],
)
def test_a_job_of_each_kind_is_submitted_listed_and_waited_for(
    bob: Person, runtime: InMemoryRuntime, kind: Any, environments: list[str]
) -> None:
    client = client_of(bob)
    job_id, key = submit(bob, runtime, kind)
    assert [(row["id"], row["environments"]) for row in client.jobs.list(kind=kind)] == [(job_id, environments)]
    succeed(runtime, key)
    relay_all(runtime)
    job = client.jobs.wait(job_id, timeout_s=1)
    assert (job["state"], job["dataset"], job["head"]) == ("succeeded", None, "mlp")


def test_the_problems_of_a_refused_policy_are_named(bob: Person) -> None:
    with pytest.raises(Invalid) as refused:
        client_of(bob).jobs.submit(make_policy_spec("rl", make_adapter(bob), executed_steps=9))
    assert [problem.pointer for problem in refused.value.problems] == ["/executed_steps"]


def test_report_and_films_of_an_evaluation_are_fetched(bob: Person, runtime: InMemoryRuntime, tmp_path: Path) -> None:
    client = client_of(bob)
    job_id, key = submit(bob, runtime, "evaluation")
    with pytest.raises(Conflict):
        client.jobs.evaluation(job_id)
    publish(runtime, key, "video", FILM, media_type="video/mp4")
    publish(runtime, key, "evaluation", json.dumps(REPORT).encode(), media_type="application/json")
    relay_all(runtime)
    report = client.jobs.evaluation(job_id)
    assert report["tasks"][0]["success_once"]["rate"] == 0.5
    assert [own["cause"] for own in report["tasks"][0]["episodes"]] == ["success", "error"]
    (film,) = client.jobs.artifacts(job_id, kind="video")
    assert client.artifacts.get(film["id"]) == film
    assert client.artifacts.download(film["id"], to=tmp_path / "film.mp4").read_bytes() == FILM
    (report_file,) = client.artifacts.list(kind="evaluation")
    assert json.loads(client.artifacts.download(report_file["id"], to=tmp_path / "report.json").read_text()) == REPORT
    rows = [*csv.reader(client.jobs.episodes_csv(job_id, to=tmp_path / "episodes.csv").open())]
    assert [row[1:3] for row in rows] == [["seed", "outcome"], ["1", "success"], ["2", "error"]]


def test_metrics_are_saved_undecimated(bob: Person, runtime: InMemoryRuntime, tmp_path: Path) -> None:
    job_id, key = submit(bob, runtime, "rl")
    for step in range(1, 5):
        runtime.train_step([key], step)
    relay_all(runtime)
    file = client_of(bob).jobs.metrics_csv(job_id, to=tmp_path / "m.csv", series=("loss",))
    assert [(row["step"], float(row["value"])) for row in csv.DictReader(file.open())] == [
        (str(step), 1 / step) for step in range(1, 5)
    ]


def test_a_refused_table_leaves_no_file(bob: Person, runtime: InMemoryRuntime, tmp_path: Path) -> None:
    job_id, _ = submit(bob, runtime, "evaluation")
    with pytest.raises(Conflict, match="no evaluation report"):
        client_of(bob).jobs.episodes_csv(job_id, to=tmp_path / "episodes.csv")
    assert list(tmp_path.iterdir()) == []


def test_recorded_episodes_are_waited_for_until_they_are_a_dataset_version(
    bob: Person, runtime: InMemoryRuntime, settings: Any, tmp_path: Path
) -> None:
    settings.JOYNEXUS_DATASET_ROOT = tmp_path
    client = client_of(bob)
    job_id, key = submit(bob, runtime, "rollout")
    publish(runtime, key, "dataset", b"PK\x05\x06" + bytes(18))
    relay_all(runtime)
    with pytest.raises(Timeout):
        client.jobs.wait_recorded(job_id, timeout_s=0)
    with platform_scope():
        import_run(Artifact.objects.get(job_id=job_id, kind="dataset").pk, runtime=runtime)
    version = client.datasets.version(client.jobs.wait_recorded(job_id, timeout_s=0))
    assert (version["recorded_from"], version["name"]) == (job_id, "pushes of our own")


def test_a_policy_is_kept_for_a_while_or_deleted_and_its_heirs_hinder_that(
    bob: Person, runtime: InMemoryRuntime
) -> None:
    client = client_of(bob)
    job_id, key = submit(bob, runtime, "evaluation")
    (policy,) = client.artifacts.list(kind="adapter")
    assert client.artifacts.keep(policy["id"], days=30)["keep_until"] is not None
    assert client.artifacts.keep(policy["id"], days=None)["keep_until"] is None
    with pytest.raises(Invalid):
        client.artifacts.keep(policy["id"], days=0)
    with pytest.raises(Conflict, match=job_id):
        client.artifacts.delete(policy["id"])
    succeed(runtime, key)
    relay_all(runtime)
    for _ in range(2):  # again is harmless
        client.artifacts.delete(policy["id"])
    assert client.artifacts.get(policy["id"])["deleted_at"] is not None
    with pytest.raises(ApiError) as gone:
        client.artifacts.keep(policy["id"], days=30)
    assert gone.value.status == 410
