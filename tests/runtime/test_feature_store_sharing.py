"""Tenants that miss the same frames at the same time: each frame goes through the base once, all of them pay it."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpu_runtime.batching import repeats
from gpu_runtime.batching.collate import PreparedSample
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.protocol.messages import DatasetBinding, Event, SubmitJob, WorkloadState
from gpu_runtime.scheduler.training_queue import Group
from gpu_runtime.training.queue import SharedQueue
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import GR00T, MLP, ended, events_of, make_config, metric, running, submit_message

TENANTS = ("a", "b", "c")
QUIET = {"steps": 12, "evaluate_every": 1000, "checkpoint_every": 1000}


class Witness:
    """How often each frame of a dataset ran through the packed forward, and how many asked for it at once.

    The probe of a finished policy names no frames and is not counted: it shows what its archive does by itself.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ran: Counter[FrameKey] = Counter()
        self.together = 0  # most times that one call asked for one frame
        prepare, run = Qwen3VLBackbone._prepare_group, Qwen3VLBackbone._run
        names: dict[PreparedSample, FrameKey] = {}

        def prepared(base, features, taps):
            samples, asked = prepare(base, features, taps)
            named = {sample: f.key for sample, f in zip(samples, features, strict=True) if f.key is not None}
            names.update(named)
            self.together = max([self.together, *Counter(named.values()).values()])
            return samples, asked

        def ran(base, samples, parsed):
            self.ran.update(names[sample] for sample in samples if sample in names)
            return run(base, samples, parsed)

        patch.setattr(Qwen3VLBackbone, "_prepare_group", prepared)
        patch.setattr(Qwen3VLBackbone, "_run", ran)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


def submits(binding: DatasetBinding, head: dict[str, object]) -> list[SubmitJob]:
    """Tenants that draw the same frames in the same order, so that they want them at the same time."""
    return [submit_message(binding, job_id=f"of-{name}", tenant_id=name, head=head, **QUIET) for name in TENANTS]


def hold_until_all_are_ready(patch: pytest.MonkeyPatch, count: int) -> None:
    """The device waits until so many jobs have something ready: what all begin with is then one group."""
    lease = SharedQueue.next_group
    begun: list[bool] = []

    def later(queue: SharedQueue) -> Group | None:
        ready = {job.job_id for job in queue._jobs.values() if job.ready_at_us}
        if not begun and len(ready) < count:
            return None
        begun.append(True)
        return lease(queue)

    patch.setattr(SharedQueue, "next_group", later)


async def train(state: Path, datasets: Path, jobs: Sequence[SubmitJob]) -> list[Event]:
    """All events of jobs that begin together and run side by side to their end."""
    config = make_config(state, datasets, feature_store_dtype="float32")
    with pytest.MonkeyPatch.context() as patch:
        hold_until_all_are_ready(patch, len(jobs))
        async with running(config) as runtime:
            for job in jobs:
                await runtime.master.submit(job)
            for job in jobs:
                status = await ended(runtime, job)
                assert status.state is WorkloadState.SUCCEEDED, status
            return events_of(runtime)


def losses(events: Sequence[Event], job: SubmitJob) -> list[tuple[int, float]]:
    return metric([event for event in events if event.job_id == job.job_id], "train/loss")


@pytest.mark.parametrize("head", [MLP, GR00T], ids=["mlp", "gr00t"])
async def test_of_all_who_miss_a_frame_together_it_runs_once_and_nobodys_losses_change(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch, head: dict[str, object]
) -> None:
    jobs = submits(binding, head)
    alone = await train(tmp_path / "alone", datasets, jobs[:1])
    witness = Witness(monkeypatch)
    together = await train(tmp_path / "together", datasets, jobs)
    assert witness.together == len(TENANTS), "they never missed a frame at the same time: this shows nothing"
    assert len(witness.ran) > QUIET["steps"]
    assert set(witness.ran.values()) == {1}
    for job in jobs:
        assert losses(together, job) == losses(alone, jobs[0])


async def test_frames_without_their_names_would_run_once_for_each_tenant(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted violation: the base is not told which frames are the same."""

    witness = Witness(monkeypatch)
    monkeypatch.setattr(repeats, "_identity", lambda index, _: index)
    await train(tmp_path / "state", datasets, submits(binding, MLP))
    assert max(witness.ran.values()) == len(TENANTS)


async def test_whoever_asks_for_a_shared_frame_has_a_part_in_its_forward_and_the_books_are_exact(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    events = await train(tmp_path / "state", datasets, submits(binding, MLP))
    spans = [event.body for event in events if event.body.type == "span" and event.body.group_size]
    assert all(sum(span.shares.values()) + span.overhead_us == span.busy_us for span in spans)
    shared = [span for span in spans if len(span.shares) == len(TENANTS) and span.tokens]
    assert shared
    assert all(min(span.shares.values()) > 0 for span in shared)
    used = [event.body for event in events if event.body.type == "usage"]
    paid = sum(line.quantity for usage in used for line in usage.lines if line.meter == "train.compute_us")
    assert paid == sum(sum(span.shares.values()) for span in spans)
