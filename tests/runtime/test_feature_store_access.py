"""Whose stored features a job can reach: those of the files bound to it, and none of what has been deleted."""

from pathlib import Path

import pytest

from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import DatasetBinding, SubmitJob, WorkloadState, WorkloadStatus
from gpu_runtime.services import sft_workload
from gpu_runtime.services.removal import Removal
from gpu_runtime.store.files import bytes_of
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import GR00T, ended, events_of, make_config, metric, running, submit_message

QUIET = {"evaluate_every": 1000, "checkpoint_every": 1000}
EXACT = {"feature_store_dtype": "float32"}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def theirs(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "theirs"))


@pytest.fixture(scope="module")
def ours(datasets: Path) -> DatasetBinding:
    """Other pictures; the same shapes, episodes and words."""
    return bind(datasets, make_dataset(datasets / "ours", seed=1))


def job(binding: DatasetBinding, name: str, steps: int = 12) -> SubmitJob:
    return submit_message(binding, job_id=name, tenant_id=name, head=GR00T, steps=steps, **QUIET)


async def run(runtime: LocalRuntime, submit: SubmitJob) -> WorkloadStatus:
    await runtime.master.submit(submit)
    return await ended(runtime, submit)


async def losses_alone(state: Path, datasets: Path, submit: SubmitJob) -> list[tuple[int, float]]:
    async with running(make_config(state, datasets, **EXACT)) as runtime:
        assert (await run(runtime, submit)).state is WorkloadState.SUCCEEDED
        return metric(events_of(runtime, submit.job_id), "train/loss")


def hits(runtime: LocalRuntime) -> int:
    status = runtime.status().feature_store
    assert status is not None
    return status.hits


async def test_a_job_that_gives_its_own_files_another_labs_name_finds_nothing_of_theirs(
    tmp_path: Path, datasets: Path, ours: DatasetBinding, theirs: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a wrong or forged binding would be: their version's id on our files. Steps are as if it were alone."""
    forged = ours.model_copy(update={"version_id": theirs.version_id})
    alone = await losses_alone(tmp_path / "alone", datasets, job(forged, "forger"))
    async with running(make_config(tmp_path / "both", datasets, **EXACT)) as runtime:
        assert (await run(runtime, job(theirs, "owner"))).state is WorkloadState.SUCCEEDED
        assert (await run(runtime, job(forged, "forger"))).state is WorkloadState.SUCCEEDED
        assert metric(events_of(runtime, "forger"), "train/loss") == alone
    # a planted violation: files do not count in the name
    monkeypatch.setattr(sft_workload, "dataset_name", lambda version_id, fingerprint: f"{version_id}@any")
    async with running(make_config(tmp_path / "planted", datasets, **EXACT)) as runtime:
        await run(runtime, job(theirs, "owner"))
        await run(runtime, job(forged, "forger"))
        assert metric(events_of(runtime, "forger"), "train/loss") != alone


async def test_a_job_that_claims_another_labs_version_without_its_files_fails_and_looks_nothing_up(
    tmp_path: Path, datasets: Path, ours: DatasetBinding, theirs: DatasetBinding
) -> None:
    forged = theirs.model_copy(update={"storage_key": ours.storage_key})
    async with running(make_config(tmp_path, datasets)) as runtime:
        await run(runtime, job(theirs, "owner"))
        before = hits(runtime)
        status = await run(runtime, job(forged, "forger"))
        assert (status.state, status.reason) == (WorkloadState.FAILED, "dataset_changed")
        assert hits(runtime) == before


async def test_features_of_a_deleted_dataset_go_while_another_job_trains_on_undisturbed(
    tmp_path: Path, datasets: Path, ours: DatasetBinding, theirs: DatasetBinding
) -> None:
    going = job(ours, "going", steps=200)
    alone = await losses_alone(tmp_path / "alone", datasets, going)
    state = tmp_path / "both"
    async with running(make_config(state, datasets, **EXACT)) as runtime:
        await run(runtime, job(theirs, "done"))
        await runtime.master.submit(going)
        await until_step(runtime, 40)
        before = runtime.features.status()
        freed = await removal(runtime).dataset_features(theirs.version_id)
        after = runtime.features.status()
        assert len(metric(events_of(runtime, "going"), "train/loss")) < 200, "it was over before anything was deleted"
        assert freed > 0
        assert after.entries < before.entries
        assert runtime.features.versions() == {ours.version_id}
        assert (await ended(runtime, going)).state is WorkloadState.SUCCEEDED
        assert metric(events_of(runtime, "going"), "train/loss") == alone
        assert metric(events_of(runtime, "going"), "service/feature_hits")[-1][1] == 1.0, "its own are all there"
        assert bytes_of(state / "features") == runtime.features.status().file_bytes
        again = job(theirs, "again")
        await run(runtime, again)
        assert runtime.features.versions() == {ours.version_id}, "a deleted version is kept again"


async def test_a_job_whose_features_go_under_its_hands_computes_them_and_ends_with_the_same_losses(
    tmp_path: Path, datasets: Path, ours: DatasetBinding
) -> None:
    going = job(ours, "going", steps=200)
    alone = await losses_alone(tmp_path / "alone", datasets, going)
    async with running(make_config(tmp_path / "on", datasets, **EXACT)) as runtime:
        await runtime.master.submit(going)
        await until_step(runtime, 40)
        runtime.features.forget_version(ours.version_id)
        assert len(metric(events_of(runtime, "going"), "train/loss")) < 200, "it was over before anything was deleted"
        assert (await ended(runtime, going)).state is WorkloadState.SUCCEEDED
        events = events_of(runtime, "going")
        assert metric(events, "train/loss") == alone
        assert metric(events, "service/feature_hits")[-1][1] == 0.0
        assert runtime.features.status().entries == 0
        assert runtime.staging.bytes == 0


def removal(runtime: LocalRuntime) -> Removal:
    """What the gateway deletes with."""
    return Removal(
        master=runtime.master,
        artifacts=runtime.artifacts,
        checkpoints=runtime.checkpoints,
        features=runtime.features,
        files=runtime._pools["files"],
    )


async def until_step(runtime: LocalRuntime, step: int) -> None:
    while len(metric(events_of(runtime, "going"), "train/loss")) < step:
        await runtime.feed.read(after=runtime.journal.last_seq, limit=1, wait_s=5)
