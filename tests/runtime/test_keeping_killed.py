"""A wish to keep, and kill -9 before it is fulfilled: the next process does it."""

import time
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.protocol.messages import DatasetBinding, StopJob, WorkloadState
from gpu_runtime.protocol.wire import encode
from tests.support.books import check_books, usage_by_meter, written
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import RuntimeProcess, submit_message
from tests.support.runtime_policies import Shelved, artifacts_of, policy_message

CAP = StopJob(keep=True, reason="budget_reached", message="the job has cost what it may")


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demonstrations")


@pytest.fixture(scope="module")
def binding(demonstrations: Path) -> DatasetBinding:
    return bind(demonstrations, make_dataset(demonstrations / "one"))


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    """Acts on its state alone."""
    return Shelved.make(tmp_path_factory.mktemp("blind"), cameras=False)


@pytest.fixture
def process(tmp_path: Path, demonstrations: Path) -> Iterator[RuntimeProcess]:
    runtime = RuntimeProcess(tmp_path / "state", demonstrations)
    yield runtime
    runtime.close()


HANG_WHERE_IT_KEEPS = """
import asyncio, sys
from gpu_runtime.services.publishing import Publisher
async def hang(*args): await asyncio.sleep(3600)
Publisher.publish_sft = hang
from gpu_runtime.__main__ import main
sys.exit(main())
"""


def test_a_wish_to_keep_survives_kill_9_and_what_was_paid_is_in_the_policy(
    process: RuntimeProcess, binding: DatasetBinding
) -> None:
    process.start(("-c", HANG_WHERE_IT_KEEPS))
    submit = submit_message(binding, steps=100_000, checkpoint_every=5, evaluate_every=1000)
    assert process.submit(submit).status_code == 202
    process.until(lambda: process.job("job").step >= 8 or None)
    process.http.post("/v1/jobs/job/1/cancel", content=encode(CAP))
    process.until(lambda: process.job("job").state == WorkloadState.CANCELLING or None)
    process.until(lambda: _settled(process) or None)
    process.kill()
    paid = usage_by_meter(written(process.state))["train.samples"]
    process.start()
    status = process.until_ended("job")
    assert (status.state, status.reason, status.message) == (WorkloadState.CANCELLED, CAP.reason, CAP.message)
    events = process.events()
    (adapter,) = artifacts_of(events, "adapter")
    assert adapter.policy_version == status.step == paid / 4, "every step that was paid is in what is kept"
    assert usage_by_meter(events)["train.samples"] == paid, "and what was redone is not paid again"
    archive = process.http.get(f"/v1/artifacts/{adapter.artifact_id}")
    assert "adapter.safetensors" in zipfile.ZipFile(BytesIO(archive.content)).namelist()
    check_books(events)


def _settled(process: RuntimeProcess) -> bool:
    """It is where it publishes: in 0.3 s no step was made."""
    before = len(written(process.state))
    time.sleep(0.3)
    return len(written(process.state)) == before


def test_recorded_rollouts_survive_kill_9_between_the_wish_and_the_end(
    tmp_path: Path, process: RuntimeProcess, blind: Shelved
) -> None:
    submit = policy_message(blind.install(process.state), "rollout", episodes=5000, dataset_name="own")
    process.start(
        (
            "-c",
            HANG_WHERE_IT_KEEPS.replace("publishing", "rollout_workload")
            .replace("Publisher.publish_sft", "RolloutWorkflow.keep")
            .replace("import Publisher", "import RolloutWorkflow"),
        )
    )
    assert process.submit(submit).status_code == 202
    process.until(lambda: process.job("job").step >= 3 or None)
    process.http.post("/v1/jobs/job/1/cancel", content=encode(CAP))
    process.until(lambda: _settled(process) or None)
    process.kill()
    process.start()
    status = process.until_ended("job")
    assert (status.state, status.reason) == (WorkloadState.CANCELLED, CAP.reason)
    process.terminate()
    (published,) = artifacts_of(written(process.state, "job"), "dataset")
    with zipfile.ZipFile(process.state / "artifacts" / f"{published.artifact_id}.zip") as zipped:
        zipped.extractall(tmp_path / "unpacked")
    assert len(LeRobotDataset.open(tmp_path / "unpacked").episodes) == status.step >= 3
