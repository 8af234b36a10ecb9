"""Fitting and evaluating through the store: what they come to is what they come to without it, found or computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpu_runtime.data.sampler import FrameRef
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import DatasetBinding, SubmitJob, WorkloadState
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.training import step
from gpu_runtime.training.frames import FrameRows
from gpu_runtime.training.member import Features, Member
from gpu_runtime.workflows.plan import SftPlan
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import GR00T, MLP, OFT, ended, events_of, make_config, metric, running, submit_message

OFF = {"feature_store_ram_bytes": 0, "feature_store_file_bytes": 0}
EXACT = {"feature_store_dtype": "float32"}
HEADS = pytest.mark.parametrize("head", [MLP, GR00T, OFT], ids=["mlp", "gr00t", "oft"])
LENGTHS = (12, 13, 14, 12, 13, 14)  # frames of the six episodes


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a job came to, how its frames were found, and which purposes ran a forward."""

    weights: bytes  # the head with the statistics that were fitted
    errors: list[tuple[int, float]]  # of every evaluation
    per_dimension: list[tuple[int, float]]
    hits: int
    misses: int
    computed: frozenset[Purpose]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


def job(binding: DatasetBinding, head: dict[str, object], name: str) -> SubmitJob:
    return submit_message(
        binding, job_id=name, tenant_id=name, head=head, steps=4, evaluate_every=2, checkpoint_every=100
    )


async def see(state: Path, datasets: Path, jobs: Sequence[SubmitJob], **settings: object) -> list[Seen]:
    """Run the jobs one after another on one runtime."""
    computed: set[Purpose] = set()
    forward = step._forward

    def watched(members: Sequence[Member], **options: bool) -> dict[str, Features]:
        computed.update(member.work.purpose for member in members if member.inputs)
        return forward(members, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "_forward", watched)
        async with running(make_config(state, datasets, **settings)) as runtime:
            return [await see_one(runtime, submit, computed) for submit in jobs]


async def see_one(runtime: LocalRuntime, submit: SubmitJob, computed: set[Purpose]) -> Seen:
    computed.clear()
    hits, misses = counts(runtime)
    await runtime.master.submit(submit)
    status = await ended(runtime, submit)
    assert status.state is WorkloadState.SUCCEEDED, status
    events = events_of(runtime, submit.job_id)
    now = counts(runtime)
    return Seen(
        weights=(runtime.artifacts.folder(f"{submit.job_id}-1-v4") / "adapter.safetensors").read_bytes(),
        errors=metric(events, "eval/action_error"),
        per_dimension=metric(events, "eval/action_error/a0"),
        hits=now[0] - hits,
        misses=now[1] - misses,
        computed=frozenset(computed),
    )


def counts(runtime: LocalRuntime) -> tuple[int, int]:
    """Frames found and missed since the start."""
    status = runtime.status().feature_store
    return (0, 0) if status is None else (status.hits, status.misses)


def looked_up(submit: SubmitJob) -> tuple[int, int]:
    """Frames that a job looks up in all, each once for a piece of work; how many different ones they are."""
    assert isinstance(submit.spec, SftJobSpec)
    plan = SftPlan.of(submit.spec.training, LENGTHS, 16)
    works = [set(plan.frames(work)) for work in plan.works(start_step=0, needs_fit=True)]
    return sum(map(len, works)), len(set.union(*works))


@HEADS
async def test_statistics_and_errors_are_those_without_a_store_whether_frames_were_found_or_computed(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, head: dict[str, object]
) -> None:
    jobs = [job(binding, head, name) for name in ("first", "again")]
    (plain,) = await see(tmp_path / "off", datasets, jobs[:1], **OFF)
    missed, found = await see(tmp_path / "on", datasets, jobs, **EXACT)
    assert [step for step, _ in plain.errors] == [2, 4]
    assert plain.per_dimension
    assert plain.computed == missed.computed == {Purpose.FIT, Purpose.TRAIN, Purpose.EVALUATE}
    assert found.computed == frozenset(), "everything was stored by the first job"
    for seen in (missed, found):
        assert seen.errors == plain.errors
        assert seen.per_dimension == plain.per_dimension
        assert seen.weights == plain.weights


async def test_every_frame_of_every_purpose_is_counted_once_as_found_or_missed(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    jobs = [job(binding, MLP, name) for name in ("first", "again")]
    missed, found = await see(tmp_path, datasets, jobs, **EXACT)
    lookups, frames = looked_up(jobs[0])
    assert (missed.misses, missed.hits) == (frames, lookups - frames)
    assert (found.misses, found.hits) == (0, lookups)


async def test_with_half_precision_an_evaluation_is_the_same_found_or_computed_and_near_the_exact_one(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    jobs = [job(binding, GR00T, name) for name in ("first", "again")]
    (plain,) = await see(tmp_path / "off", datasets, jobs[:1], **OFF)
    missed, found = await see(tmp_path / "on", datasets, jobs)
    assert missed.errors == found.errors
    assert missed.weights == found.weights != plain.weights
    assert [error for _, error in missed.errors] == pytest.approx([error for _, error in plain.errors], rel=1e-3)


async def test_rows_of_other_frames_would_be_seen_in_statistics_and_errors(
    tmp_path: Path, datasets: Path, binding: DatasetBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted violation: all frames of an episode go by one name."""
    keys = FrameRows.keys

    def one_per_episode(rows: FrameRows, refs):
        return keys(rows, [FrameRef(ref.episode, 0) for ref in refs])

    (plain,) = await see(tmp_path / "off", datasets, [job(binding, MLP, "first")], **OFF)
    monkeypatch.setattr(FrameRows, "keys", one_per_episode)
    (wrong,) = await see(tmp_path / "on", datasets, [job(binding, MLP, "first")], **EXACT)
    assert wrong.errors != plain.errors
    assert wrong.weights != plain.weights
