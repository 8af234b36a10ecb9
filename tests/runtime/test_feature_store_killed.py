"""kill -9 in the middle of a job that trains through the store: it ends as if nothing had happened."""

import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

from gpu_runtime.features.segment import INDEX, open_sealed
from gpu_runtime.protocol.messages import DatasetBinding, FeatureStoreStatus, SubmitJob, WorkloadState
from gpu_runtime.store.files import bytes_of
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import GR00T, MLP, RuntimeProcess, metric, submit_message

STEPS = 40  # of four samples: more than two epochs
KILLED_AT = (4, 26)  # before the first checkpoint and before anything was found; when every frame has been seen


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


Start = Callable[..., RuntimeProcess]


@pytest.fixture
def start(tmp_path: Path, datasets: Path) -> Iterator[Start]:
    """Starts runtimes, and ends them all with the test."""
    started: list[RuntimeProcess] = []

    def begin(name: str, **settings: str) -> RuntimeProcess:
        started.append(RuntimeProcess(tmp_path / name, datasets, **settings))
        started[-1].start()
        return started[-1]

    yield begin
    for runtime in started:
        runtime.close()


def jobs(binding: DatasetBinding) -> list[SubmitJob]:
    """Two tenants on one dataset version."""
    options = {"steps": STEPS, "evaluate_every": 10, "checkpoint_every": 7}
    return [
        submit_message(binding, job_id=name, tenant_id=name, head=head, **options)
        for name, head in (("mlp", MLP), ("flow", GR00T))
    ]


def outcome(runtime: RuntimeProcess, submit: SubmitJob) -> tuple[list[tuple[int, float]], ...]:
    """Losses and evaluations by step; each step is there once."""
    events = [event for event in runtime.events() if event.job_id == submit.job_id]
    return sorted(metric(events, "train/loss")), sorted(metric(events, "eval/action_error"))


def weights(runtime: RuntimeProcess, submit: SubmitJob) -> bytes:
    archive = runtime.http.get(f"/v1/artifacts/{submit.job_id}-1-v{STEPS}")
    with zipfile.ZipFile(BytesIO(archive.content)) as files:
        return files.read("adapter.safetensors")


def finish(runtime: RuntimeProcess, submits: list[SubmitJob]) -> None:
    for submit in submits:
        status = runtime.until_ended(submit.job_id)
        assert (status.state, status.step) == (WorkloadState.SUCCEEDED, STEPS), status


def told(runtime: RuntimeProcess) -> FeatureStoreStatus:
    status = runtime.status().feature_store
    assert status is not None
    return status


def sealed_frames(state: Path, dtype: str) -> int:
    """Frames in files with a whole index: all that a kill leaves to the next process."""
    found = 0
    for index in (state / "features").glob(f"*{INDEX}"):
        segment = open_sealed(index, dtype)
        assert segment is not None
        found += len(segment.extents)
        segment.close()
    return found


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_killed_jobs_end_with_the_losses_of_an_undisturbed_run_and_find_again_what_was_sealed(
    start: Start, binding: DatasetBinding, dtype: str
) -> None:
    submits = jobs(binding)
    undisturbed = start("calm", feature_store_dtype=dtype)
    for submit in submits:
        undisturbed.submit(submit)
    finish(undisturbed, submits)
    whole = told(undisturbed)
    # small segments, so that some are sealed in the middle of a job; room for everything, so that none is evicted
    runtime = start("killed", feature_store_dtype=dtype, feature_store_file_bytes=str(3 * whole.file_bytes))
    for submit in submits:
        runtime.submit(submit)
    for step in KILLED_AT:
        runtime.until(lambda step=step: all(runtime.job(submit.job_id).step >= step for submit in submits) or None)
        runtime.kill()
        sealed = sealed_frames(runtime.state, dtype)
        runtime.start()
    finish(runtime, submits)
    again = told(runtime)
    assert 0 < sealed < whole.entries
    assert again.hits > 0
    assert again.misses <= whole.entries - sealed, "a frame that lay in a sealed file was computed again"
    assert again.file_bytes == bytes_of(runtime.state / "features")
    for submit in submits:
        assert outcome(runtime, submit) == outcome(undisturbed, submit)
        assert weights(runtime, submit) == weights(undisturbed, submit)
    redone = [e for e in runtime.events() if e.body.type == "usage" and e.body.reason == "redone_after_restart"]
    assert redone, "no step was redone: the kills came too late to show anything"
