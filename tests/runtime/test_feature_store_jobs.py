"""Jobs that train through the store of features: what is computed, and that no number depends on it.

Everything is one process with the tiny base, a small head and 32-pixel images.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.features import rows
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import DatasetBinding, SubmitJob, WorkloadState
from gpu_runtime.training import step
from gpu_runtime.training.member import Features, Member
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import GR00T, MLP, ended, events_of, make_config, metric, running, submit_message

OFF = {"feature_store_ram_bytes": 0, "feature_store_file_bytes": 0}
SCARCE = {"feature_store_ram_bytes": 20_000, "feature_store_file_bytes": 0}
QUIET = {"evaluate_every": 1000, "checkpoint_every": 1000}
STEPS = 200  # of four samples: more than ten epochs


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


def no_forward(members: Sequence[Member], **_: object) -> dict[str, Features]:
    assert not any(member.inputs for member in members), "a frame went through the base again"
    return {member.partition_id: [] for member in members}


async def train(runtime: LocalRuntime, submit: SubmitJob, name: str) -> list[tuple[int, float]]:
    """A metric of a job that is run to its end."""
    await runtime.master.submit(submit)
    status = await ended(runtime, submit, 120)
    assert status.state is WorkloadState.SUCCEEDED, status
    return metric(events_of(runtime, submit.job_id), name)


async def losses_of(state: Path, datasets: Path, submit: SubmitJob, **settings: object) -> list[tuple[int, float]]:
    async with running(make_config(state, datasets, **settings)) as runtime:
        return await train(runtime, submit, "train/loss")


@pytest.mark.parametrize("head", [GR00T, MLP], ids=["gr00t", "mlp"])
async def test_losses_are_those_without_a_store_exactly_or_to_half_precision_and_never_depend_on_evictions(
    tmp_path: Path,
    datasets: Path,
    binding: DatasetBinding,
    head: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit = submit_message(binding, head=head, steps=STEPS, **QUIET)
    plain = await losses_of(tmp_path / "off", datasets, submit, **OFF)
    exact = await losses_of(tmp_path / "exact", datasets, submit, feature_store_dtype="float32")
    half = await losses_of(tmp_path / "half", datasets, submit)
    scarce = await losses_of(tmp_path / "scarce", datasets, submit, **SCARCE)
    assert len(plain) == STEPS
    assert exact == plain
    assert half == scarce
    assert half != plain, "nothing was rounded: the store was not used"
    np.testing.assert_allclose(half, plain, rtol=1e-4)
    # a random base's features hardly vary; standardising blows that up, and the rounding with it
    monkeypatch.setattr(rows, "STEPS", 2**-40)  # fine bytes are all zero
    rounded = await losses_of(tmp_path / "rounded", datasets, submit)
    assert np.abs(np.array(rounded) / plain - 1).max() > 1e-4, "half precision alone would have done"


async def test_later_epochs_and_a_second_tenant_of_the_same_version_compute_nothing_and_an_equal_copy_everything(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit_message(binding, steps=60, **QUIET)
    second = submit_message(binding, job_id="second", tenant_id="b", steps=3, **QUIET)
    copy = submit_message(
        binding.model_copy(update={"version_id": "version-copy"}), job_id="copy", tenant_id="c", steps=1, **QUIET
    )
    async with running(make_config(tmp_path, datasets)) as runtime:
        hits = [value for _, value in await train(runtime, first, "service/feature_hits")]
        assert hits[-20:] == [1.0] * 20
        entries = runtime.features.status().entries
        with monkeypatch.context() as patch:
            patch.setattr(step, "_forward", no_forward)
            found = await train(runtime, second, "service/feature_hits")
        assert [value for _, value in found] == [1.0] * 3
        assert runtime.features.status().entries == entries
        assert [value for _, value in await train(runtime, copy, "service/feature_hits")] == [0.0]
        assert runtime.features.versions() == {binding.version_id, "version-copy"}


@pytest.mark.parametrize("head", [MLP, GR00T], ids=["mlp", "gr00t"])
async def test_a_cancelled_job_leaves_nothing_staged(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, head: dict[str, object]
) -> None:
    submit = submit_message(binding, head=head, steps=100_000, **QUIET)
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(submit)
        while len(metric(events_of(runtime, "job"), "train/loss")) < 40:
            await runtime.feed.read(after=runtime.journal.last_seq, limit=1, wait_s=5)
        await runtime.master.cancel("job", 1)
        assert (await ended(runtime, submit, 10)).state is WorkloadState.CANCELLED
        assert runtime.staging.bytes == 0
        assert runtime.partitions.live_bytes == 0
