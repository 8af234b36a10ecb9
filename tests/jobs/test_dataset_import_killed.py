"""kill -9 of the worker that takes a recorded dataset in: the next one brings it in, whole and once."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from jobs.models import Artifact, DatasetImport
from jobs.runtime_client import HttpRuntimeClient
from jobs.services.dataset_import import import_run
from tenants.datasets import storage
from tenants.datasets.models import DatasetVersion
from tenants.scope import platform_scope
from tests.support.jobs import relay_all
from tests.support.memory_gateway import gateway_at_port
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import start_policy_job
from tests.support.service_steps import publish
from tests.support.story import Person

REPOSITORY = Path(__file__).resolve().parents[2]
TOKEN, CONTENT = "token-of-the-kill-test", os.urandom(300_000)

# A worker that is slow at one place, so that the kill finds it there.
WORKER = """
import sys, time, uuid, django
django.setup()
from django.conf import settings
from django.db import connections
from jobs import runtime_client
from jobs.services import dataset_import
from tenants.datasets import storage, uploads

name, root, artifact_id, place = sys.argv[1:]
connections["default"].settings_dict["NAME"] = name
settings.JOYNEXUS_DATASET_ROOT = root
owner = {"write": uploads.StagedUpload, "take_in": storage}[place]
quick = getattr(owner, place)

def slow(*args, **options):
    result = quick(*args, **options)
    print("there", flush=True)
    time.sleep(60)
    return result

setattr(owner, place, slow)
dataset_import.import_run(uuid.UUID(artifact_id), runtime=runtime_client.connect())
"""


@pytest.fixture
def kill_at(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a worker until it is at a place, and kill it there."""
    settings.JOYNEXUS_DATASET_ROOT = tmp_path
    monkeypatch.setattr("tenants.datasets.services.nudge_validation", lambda version_id: None)

    def kill(place: str, artifact_id: object, url: str) -> None:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.support.settings",
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}",
            "JOYNEXUS_RUNTIME_URL": url,
            "JOYNEXUS_RUNTIME_TOKEN": TOKEN,
        }
        name = str(connection.settings_dict["NAME"])
        command = [sys.executable, "-c", WORKER, name, str(tmp_path), str(artifact_id), place]
        with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"there\n"
            worker.kill()

    return kill


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", ["write", "take_in"])
def test_a_worker_killed_while_it_copies_or_commits_is_followed_by_one_that_finishes(
    alice: Person, kill_at: Callable[..., None], place: str
) -> None:
    runtime = InMemoryRuntime()
    job, key = start_policy_job(alice, runtime, "rollout")
    publish(runtime, key, "dataset", CONTENT)
    relay_all(runtime)
    with platform_scope():
        artifact = Artifact.objects.get(job=job)
    with gateway_at_port(runtime, token=TOKEN) as url:
        kill_at(place, artifact.pk, url)
        row = _wait_for_the_database(artifact)
        assert (row.state, row.attempts) == ("importing", 1)
        import_run(artifact.pk, runtime=HttpRuntimeClient(url, TOKEN))
        assert _versions() == []  # the dead worker's claim still stands
        with platform_scope():
            DatasetImport.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
        for _ in range(2):
            import_run(artifact.pk, runtime=HttpRuntimeClient(url, TOKEN))
    (version,) = _versions()
    assert (version.recorded_from, version.number) == (job.pk, 1)
    assert storage.received_path(version.pk).read_bytes() == CONTENT


def _versions() -> list[DatasetVersion]:
    with platform_scope():
        return list(DatasetVersion.objects.exclude(recorded_from=None))


def _wait_for_the_database(artifact: Artifact) -> DatasetImport:
    """A server takes a moment to notice that its client was killed, and to roll back."""
    deadline_s = time.monotonic() + 10
    while True:
        with platform_scope():
            row = DatasetImport.objects.get(artifact=artifact)
        if row.state != "imported" or time.monotonic() > deadline_s:
            return row
        time.sleep(0.05)
