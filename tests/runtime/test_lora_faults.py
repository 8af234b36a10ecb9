"""One group of tenants that train adapters: whatever happens to some, the others take the step they take alone."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.checkpoint import save_slot
from gpu_runtime.models.heads.base import Head, LossParts
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.slots import Prepared, Slot
from gpu_runtime.models.weights import read_tensors
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.lora import LoraSpec
from gpu_runtime.protocol.messages import SubmitJob, WorkloadState
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training import adapted
from gpu_runtime.training.record import record_step
from gpu_runtime.training.step import Member, StepOutcome
from tests.runtime.test_lora_jobs import Tenant, device_step, equal, train
from tests.support.books import check_books, written
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import OFT, ended, events_of, make_config, metric, running, submit_message

SEEDS = (1, 2, 3, 4, 5)
SICK, CANCELLED, GREEDY, WELL, ALSO_WELL = range(5)
RANKS = (4, 4, 8, 4, 2)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> LeRobotDataset:
    return LeRobotDataset.open(make_dataset(tmp_path_factory.mktemp("data") / "push", cameras=1))


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return PartitionStore(tmp_path / "partitions", 10**8)


def tenants_of(backbone: Backbone, data: LeRobotDataset) -> list[Tenant]:
    """Their adapters' ranks differ."""
    return [Tenant(backbone, data, *case) for case in zip(SEEDS, RANKS, strict=True)]


def state_of(tenant: Tenant) -> dict[str, torch.Tensor]:
    """Everything a step may change, as a checkpoint holds it: weights, optimizer, random state, counters."""
    with TemporaryDirectory() as folder:
        save_slot(tenant.slot, Path(folder) / "c")
        files = sorted((Path(folder) / "c").glob("*.safetensors"))
        found = {f"{file.name}/{name}": value for file in files for name, value in read_tensors(file).items()}
    found["step"] = torch.tensor(tenant.slot.step)
    return {name: value.nan_to_num() if value.is_floating_point() else value for name, value in found.items()}


def out_of_memory_with(
    backbone: Backbone, patch: pytest.MonkeyPatch, culprit: Tenant | None = None, stop: Member | None = None
) -> list[int]:
    """No memory for a forward with the culprit's adapter (None: with more than one); sizes of the tries.

    ``stop``: its job is cancelled as soon as a forward with it begins.
    """
    encode, tries = backbone.encode_adapted, list[int]()

    def bounded(features, taps, adapters, grad):
        owners = {id(adapter) for adapter in adapters}
        tries.append(len(owners))
        if stop is not None and id(stop.job.slot.lora) in owners:
            stop.job.stopped = True
        if len(owners) > 1 if culprit is None else id(culprit.slot.lora) in owners:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(features, taps, adapters, grad)

    patch.setattr(backbone, "encode_adapted", bounded)
    return tries


def shares_add_up(outcome: StepOutcome) -> None:
    span = record_step(outcome, leased_at_us=0).entries[0].body
    assert sum(span.shares.values()) + span.overhead_us == span.busy_us


def stepped_as_alone(tenants: Sequence[Tenant], members: Sequence[Member], alone: Sequence[Tenant], store) -> None:
    for tenant, member, other in zip(tenants, members, alone, strict=True):
        single = other.member(store, 1)
        device_step(store).run([single])
        assert (member.failure, member.skipped, single.failure) == (None, False, None)
        assert member.metrics == single.metrics
        assert equal(state_of(tenant), state_of(other))


@pytest.mark.parametrize("patched", ["forward", "loss", "backward"])
def test_a_joint_pass_without_enough_memory_is_made_one_by_one_with_the_same_numbers(
    patched: str, backbone, data, store, monkeypatch
) -> None:
    together, alone = tenants_of(backbone, data), tenants_of(backbone, data)
    train(store, together, 1)
    train(store, alone, 1)
    members = [tenant.member(store, 1) for tenant in together]
    with monkeypatch.context() as patch:
        if patched == "forward":
            out_of_memory_with(backbone, patch)
        elif patched == "loss":
            short_of_memory_in_loss(patch)
        else:
            short_of_memory_in_backward(patch)
        tries = tries_of(patch)
        outcome = device_step(store).run(members)
    assert tries == [5, 1, 1, 1, 1, 1]
    shares_add_up(outcome)
    stepped_as_alone(together, members, alone, store)


def tries_of(patch: pytest.MonkeyPatch) -> list[int]:
    """Tenants of each pass from now on."""
    together, found = adapted.AdaptedTrainer._together, list[int]()

    def counted(self, members: Sequence[Member]) -> bool:
        found.append(len(members))
        return together(self, members)

    patch.setattr(adapted.AdaptedTrainer, "_together", counted)
    return found


def short_of_memory_in_loss(patch: pytest.MonkeyPatch) -> None:
    """The third tenant's loss finds no room beside the graphs of all five."""
    loss, calls = Slot.loss, itertools.count(1)

    def bounded(self: Slot, prepared: Prepared) -> LossParts:
        if next(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss(self, prepared)

    patch.setattr(Slot, "loss", bounded)


def short_of_memory_in_backward(patch: pytest.MonkeyPatch) -> None:
    """It breaks off when the first tenant's gradients are there already."""
    backward = adapted._backward

    def bounded(steps):
        if len(steps) > 1:
            backward(steps[:1])
            raise torch.OutOfMemoryError("CUDA out of memory")
        backward(steps)

    patch.setattr(adapted, "_backward", bounded)


def test_left_over_gradients_of_a_broken_pass_would_be_noticed(backbone, data, store, monkeypatch) -> None:
    """The planted fault that the test above must catch."""
    together, alone = tenants_of(backbone, data), tenants_of(backbone, data)
    train(store, together, 1)
    train(store, alone, 1)
    members = [tenant.member(store, 1) for tenant in together]
    with monkeypatch.context() as patch:
        short_of_memory_in_backward(patch)
        patch.setattr(Slot, "abandon", lambda self, prepared: None)
        device_step(store).run(members)
    with pytest.raises(AssertionError):
        stepped_as_alone(together, members, alone, store)


def test_nan_a_stop_and_too_little_memory_in_one_group_leave_the_others_their_own_step(
    backbone, data, store, monkeypatch
) -> None:
    together, alone = tenants_of(backbone, data), tenants_of(backbone, data)
    train(store, together, 1)
    train(store, alone, 1)
    poison(together[SICK])
    before = [state_of(tenant) for tenant in together]
    members = [tenant.member(store, 1) for tenant in together]
    with monkeypatch.context() as patch:
        tries = out_of_memory_with(backbone, patch, together[GREEDY], stop=members[CANCELLED])
        outcome = device_step(store).run(members)
    assert tries[0] == 5
    assert max(tries[1:]) == 1
    assert members[SICK].failure is not None
    assert members[SICK].failure.reason == "non_finite_loss"
    assert members[CANCELLED].skipped
    assert members[GREEDY].failure is not None
    assert members[GREEDY].failure.reason == "out_of_memory"
    for index in (SICK, CANCELLED, GREEDY):
        assert equal(state_of(together[index]), before[index])
        assert all(parameter.grad is None for parameter in together[index].slot.named_parameters().values())
    shares_add_up(outcome)
    stepped_as_alone(together[WELL:], members[WELL:], alone[WELL:], store)


def poison(tenant: Tenant) -> None:
    with torch.no_grad():
        next(iter(tenant.slot.policy.head.parameters())).fill_(float("nan"))


def test_a_job_that_is_stopped_during_the_joint_pass_never_stepped_and_nobody_else_notices(
    backbone, data, store, monkeypatch
) -> None:
    together, alone = tenants_of(backbone, data), tenants_of(backbone, data)
    train(store, together, 1)
    train(store, alone, 1)
    before, members = state_of(together[0]), [tenant.member(store, 1) for tenant in together]
    backward = adapted._backward

    def stopping(steps):
        backward(steps)
        members[0].job.stopped = True

    with monkeypatch.context() as patch:
        patch.setattr(adapted, "_backward", stopping)
        device_step(store).run(members)
    assert members[0].skipped
    assert members[0].metrics == {}
    assert equal(state_of(together[0]), before)
    assert all(parameter.grad is None for parameter in together[0].slot.named_parameters().values())
    stepped_as_alone(together[1:], members[1:], alone[1:], store)


def test_a_gradient_that_is_not_finite_behind_a_finite_loss_touches_nobody_else(backbone, data, store) -> None:
    together, alone = tenants_of(backbone, data), tenants_of(backbone, data)
    train(store, together, 1)
    train(store, alone, 1)
    up_Or = together[0].slot.lora.up[0]
    handle = up_Or.register_hook(lambda grad: grad * float("inf"))
    before, members = state_of(together[0]), [tenant.member(store, 1) for tenant in together]
    device_step(store).run(members)
    handle.remove()
    assert members[0].failure is not None
    assert members[0].failure.reason == "non_finite_gradient"
    assert equal(state_of(together[0]), before)
    stepped_as_alone(together[1:], members[1:], alone[1:], store)


def message(binding, name: str, steps: int = 12) -> SubmitJob:
    submit = submit_message(
        binding, job_id=name, tenant_id=name, head=OFT, steps=steps, evaluate_every=1000, checkpoint_every=1000
    )
    return submit.model_copy(update={"spec": submit.spec.model_copy(update={"lora": LoraSpec(rank=4)})})


async def test_jobs_beside_one_that_fails_and_one_that_is_cancelled_learn_as_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = tmp_path / "datasets"
    datasets.mkdir()
    binding = bind(datasets, make_dataset(datasets / "push"))
    well, sick, endless = message(binding, "well"), message(binding, "sick"), message(binding, "endless", 100_000)
    async with running(make_config(tmp_path / "alone", datasets)) as runtime:
        await runtime.master.submit(well)
        assert (await ended(runtime, well)).state is WorkloadState.SUCCEEDED
        expected = metric(events_of(runtime, "well"), "train/loss")
    groups, together = list[set[str]](), adapted.AdaptedTrainer._together

    def breaking(self, members: Sequence[Member]) -> bool:
        groups.append({member.job.job_id for member in members})
        for member in members:
            if member.job.job_id == "sick" and member.work.step == 4:
                spoil(member.job.slot.policy.head)
        return together(self, members)

    monkeypatch.setattr(adapted.AdaptedTrainer, "_together", breaking)
    async with running(make_config(tmp_path / "beside", datasets, wait_ms=100)) as runtime:
        for submit in (endless, sick, well):
            await runtime.master.submit(submit)
        status = await ended(runtime, sick)
        assert (status.state, status.reason) == (WorkloadState.FAILED, "non_finite_loss")
        assert (await ended(runtime, well)).state is WorkloadState.SUCCEEDED
        await runtime.master.cancel("endless", 1)
        assert (await ended(runtime, endless)).state is WorkloadState.CANCELLED
        assert metric(events_of(runtime, "well"), "train/loss") == expected
        assert runtime.partitions.live_bytes == 0
    assert any(len(group) > 1 and "well" in group for group in groups)
    check_books(written(tmp_path / "beside"))


@torch.no_grad()
def spoil(head: Head) -> None:
    for parameter in head.parameters():
        parameter.fill_(float("nan"))
