"""kill -9 and SIGTERM on the real process: nothing lost, nothing twice, the same weights in the end."""

import subprocess
import zipfile
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest

from gpu_runtime.protocol.messages import DatasetBinding, Event, SubmitJob, WorkloadState
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import GR00T, MLP, RuntimeProcess, metric, submit_message

STEPS, BATCH = 40, 4


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


@pytest.fixture
def runtime(tmp_path: Path, datasets: Path):
    runtime = RuntimeProcess(tmp_path / "state", datasets)
    runtime.start()
    yield runtime
    runtime.close()


def jobs(binding: DatasetBinding, suffix: str = "") -> list[SubmitJob]:
    settings = {"steps": STEPS, "batch_size": BATCH, "evaluate_every": 10, "checkpoint_every": 7}
    return [
        submit_message(binding, job_id=f"{tenant}{suffix}", tenant_id=tenant, head=head, **settings)
        for tenant, head in [("mlp", MLP), ("flow", GR00T)]
    ]


def wait_for_step(runtime: RuntimeProcess, job_id: str, step: int) -> None:
    runtime.until(lambda: runtime.job(job_id).step >= step or None)


def assert_as_if_nothing_had_happened(runtime: RuntimeProcess, submits: list[SubmitJob]) -> None:
    """Each step's metrics once, each sample billed once, all measured time accounted for, no payload left."""
    events = runtime.events()
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    for submit in submits:
        own = [event for event in events if event.job_id == submit.job_id]
        for name in ("train/loss", "train/grad_norm", "service/group_size"):
            assert sorted(step for step, _ in metric(own, name)) == list(range(1, STEPS + 1)), name
        assert [step for step, _ in metric(own, "eval/action_error")] == [10, 20, 30, 40]
        assert billed_samples(own) == STEPS * BATCH
        assert Counter(event.body.type for event in own)["artifact"] == 1
    spans = [event.body for event in events if event.body.type == "span"]
    busy = sum(span.busy_us for span in spans)
    assert sum(sum(span.shares.values()) + span.overhead_us for span in spans) == busy
    used = [
        line for e in events if e.body.type == "usage" for line in e.body.lines if line.meter == "train.compute_us"
    ]
    assert sum(line.quantity for line in used) == sum(sum(span.shares.values()) for span in spans)
    assert list((runtime.state / "partitions").iterdir()) == []
    assert runtime.status().partition_bytes == 0


def billed_samples(events: list[Event]) -> int:
    lines = [line for e in events if e.body.type == "usage" and e.body.billable for line in e.body.lines]
    return sum(line.quantity for line in lines if line.meter == "train.samples")


def weights(runtime: RuntimeProcess, job_id: str) -> bytes:
    archive = runtime.http.get(f"/v1/artifacts/{job_id}-1-v{STEPS}")
    with zipfile.ZipFile(BytesIO(archive.content)) as files:
        return files.read("adapter.safetensors")


def test_jobs_survive_kill_9_at_any_moment_and_end_with_the_weights_of_an_undisturbed_run(
    runtime: RuntimeProcess, binding: DatasetBinding
) -> None:
    submits = jobs(binding)
    for submit in submits:
        assert runtime.submit(submit).status_code == 202
    for step in (3, 17, 31):  # before the first checkpoint, between two, with an evaluation behind it
        wait_for_step(runtime, "flow", step)
        runtime.kill()
        runtime.start()
    for submit in submits:
        status = runtime.until_ended(submit.job_id)
        assert (status.state, status.step) == (WorkloadState.SUCCEEDED, STEPS), status
    assert_as_if_nothing_had_happened(runtime, submits)
    redone = [e.body for e in runtime.events() if e.body.type == "usage" and e.body.reason == "redone_after_restart"]
    assert redone, "no step was redone: the kills came too late to show anything"
    undisturbed = jobs(binding, "-twin")
    for submit in undisturbed:
        runtime.submit(submit)
    for submit, twin in zip(submits, undisturbed, strict=True):
        assert runtime.until_ended(twin.job_id).state is WorkloadState.SUCCEEDED
        assert weights(runtime, submit.job_id) == weights(runtime, twin.job_id)


def test_sigterm_ends_within_five_seconds_and_not_one_step_is_redone(
    runtime: RuntimeProcess, binding: DatasetBinding
) -> None:
    submits = jobs(binding)
    for submit in submits:
        runtime.submit(submit)
    wait_for_step(runtime, "flow", 5)
    assert runtime.terminate() < 5
    runtime.start()
    for submit in submits:
        assert runtime.until_ended(submit.job_id).state is WorkloadState.SUCCEEDED
    assert_as_if_nothing_had_happened(runtime, submits)
    trained = [e.body for e in runtime.events() if e.body.type == "usage" and e.body.lines[0].meter == "train.samples"]
    assert len(trained) == 2 * STEPS


def test_a_cancel_that_a_crash_interrupted_is_finished_after_it(
    runtime: RuntimeProcess, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, steps=100_000)
    runtime.submit(submit)
    wait_for_step(runtime, "job", 2)
    runtime.http.post("/v1/jobs/job/1/cancel")
    runtime.kill()
    runtime.start()
    assert runtime.until_ended("job").state is WorkloadState.CANCELLED


HANGING = """
import sys, time
from gpu_runtime.training.step import DeviceStep
run = DeviceStep.run
def hanging(step, members):
    if members[0].work.name == "train/2":
        time.sleep(600)
    return run(step, members)
DeviceStep.run = hanging
from gpu_runtime.__main__ import main
sys.exit(main())
"""


HASHING = """
import sys, time
from gpu_runtime.services.datasets import DatasetVerifier
DatasetVerifier.open = lambda *_: time.sleep(600)
from gpu_runtime.__main__ import main
sys.exit(main())
"""


def test_a_dataset_that_takes_long_to_check_cannot_hold_up_the_end(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    runtime = RuntimeProcess(tmp_path / "state", datasets)
    runtime.start(entry=("-c", HASHING))
    runtime.submit(submit_message(binding, steps=3))
    runtime.until(lambda: runtime.job("job").state is WorkloadState.STARTING or None)
    assert runtime.terminate() < 5
    runtime.start()
    assert runtime.until_ended("job").state is WorkloadState.SUCCEEDED
    runtime.close()


def test_a_step_that_does_not_end_cannot_hold_up_the_end(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    runtime = RuntimeProcess(tmp_path / "state", datasets)
    runtime.start(entry=("-c", HANGING))
    runtime.submit(submit_message(binding, steps=3))
    wait_for_step(runtime, "job", 1)
    assert runtime.terminate() < 5
    runtime.start()
    assert runtime.until_ended("job").state is WorkloadState.SUCCEEDED
    assert [step for step, _ in metric(runtime.events(), "train/loss")] == [1, 2, 3]
    runtime.close()


def test_a_second_runtime_on_the_same_folder_is_refused(runtime: RuntimeProcess) -> None:
    second = subprocess.run(**runtime.command(), capture_output=True, text=True, timeout=60)
    assert (second.returncode, "another runtime is using it" in second.stderr) == (3, True), second.stderr
    assert runtime.answers()


@pytest.mark.parametrize("what", ["lock", "journal.sqlite3", "partitions"])
def test_a_state_folder_that_cannot_be_used_is_told_in_one_sentence(tmp_path: Path, datasets: Path, what: str) -> None:
    runtime = RuntimeProcess(tmp_path / "state", datasets)
    if what == "partitions":
        (runtime.state / what).write_text("in the way")
    else:
        (runtime.state / what).mkdir()
    ended = subprocess.run(**runtime.command(), capture_output=True, text=True, timeout=60)
    runtime.close()
    assert ended.returncode == 4, ended.stderr
    assert f"gpu_runtime serve: --state {runtime.state}: " in ended.stderr
    assert "Traceback" not in ended.stderr


FAILING = """
import sys
from gpu_runtime.services import training
record_step = training.record_step
def failing(outcome, **options):
    if outcome.members[0].work.name == "train/2":
        raise ArithmeticError("planted")
    return record_step(outcome, **options)
training.record_step = failing
from gpu_runtime.__main__ import main
sys.exit(main())
"""


def test_a_fault_of_the_training_service_itself_ends_the_process_and_is_logged(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    runtime = RuntimeProcess(tmp_path / "state", datasets)
    runtime.start(entry=("-c", FAILING))
    runtime.submit(submit_message(binding, steps=3))
    assert runtime.process is not None
    assert runtime.process.wait(timeout=30) == 1
    log = (runtime.state / "log").read_text()
    assert "the training service failed" in log
    assert "ArithmeticError: planted" in log
    runtime.start()
    assert runtime.until_ended("job").state is WorkloadState.SUCCEEDED
    assert [step for step, _ in metric(runtime.events(), "train/loss")] == [1, 2, 3]
    runtime.close()


LINGERING = """
import atexit, sys, time
atexit.register(time.sleep, 600)
from gpu_runtime.__main__ import main
sys.exit(main())
"""


def test_an_interpreter_that_takes_long_to_end_cannot_hold_up_the_end_of_a_closed_journal(
    tmp_path: Path, datasets: Path
) -> None:
    runtime = RuntimeProcess(tmp_path / "state", datasets)
    runtime.start(entry=("-c", LINGERING))
    assert runtime.terminate() < 5
    assert (runtime.state / "journal.sqlite3").exists()
    assert not (runtime.state / "journal.sqlite3-wal").exists(), "SQLite folds it into the journal at a close"
    assert "stopped in good order" in (runtime.state / "log").read_text()
    runtime.close()
