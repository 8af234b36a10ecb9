"""Jobs on the real thing: tiny base, real heads, real files, in one process."""

import asyncio
import hashlib
import json
import shutil
import zipfile
from collections import defaultdict
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.samples import SampleSource
from gpu_runtime.placement.local import load_bases
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.messages import DatasetBinding, SubmitJob, WorkloadState
from gpu_runtime.store.journal import Journal
from gpu_runtime.training.clock import unix_us
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import GR00T, MLP, OFT, ended, events_of, make_config, metric, running, submit_message


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def one_view(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


@pytest.fixture(scope="module")
def two_views(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "two", cameras=2, state_dim=4, action_dim=3, seed=1))


async def losses_of(state: Path, datasets: Path, *submits: SubmitJob, **settings: int) -> dict[str, list[tuple]]:
    """Train these jobs together; (step, loss) of each job."""
    async with running(make_config(state, datasets, **settings)) as runtime:
        for submit in submits:
            await runtime.master.submit(submit)
        for submit in submits:
            status = await ended(runtime, submit, 120)
            assert status.state is WorkloadState.SUCCEEDED, status
        return {submit.job_id: metric(events_of(runtime, submit.job_id), "train/loss") for submit in submits}


async def test_a_job_trains_evaluates_checkpoints_and_exports(
    tmp_path: Path, datasets: Path, two_views: DatasetBinding
) -> None:
    submit = submit_message(two_views, steps=8, evaluate_every=4, checkpoint_every=3)
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(submit)
        assert (await ended(runtime, submit)).step == 8
        events = events_of(runtime, "job")
        everything = events_of(runtime)
        assert runtime.partitions.live_bytes == runtime.queue.queue.live_bytes() == 0
        archive = runtime.artifacts.archive("job-1-v8")
    states = [event.body.state for event in events if event.body.type == "state"]
    assert states == ["accepted", "starting", "running", "succeeded"]
    for name in ("train/loss", "train/grad_norm", "train/lr", "train/samples_per_s", "service/queue_wait_ms"):
        assert [step for step, _ in metric(events, name)] == list(range(1, 9)), name
    assert [step for step, _ in metric(events, "eval/action_error/a2")] == [4, 8]
    versions = [event.body.version for event in events if event.body.type == "policy_version"]
    assert versions == [3, 6, 8]
    assert sorted(path.name for path in (tmp_path / "checkpoints/job/1").iterdir()) == [
        "step-0000000006",
        "step-0000000008",
    ]
    assert list((tmp_path / "partitions").iterdir()) == []
    assert_exact_books(everything, samples={"job": 32})
    published = next(event.body for event in events if event.body.type == "artifact")
    data = archive.read_bytes()
    assert (published.bytes, published.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    with zipfile.ZipFile(BytesIO(data)) as files:
        assert {entry.path for entry in published.files} == set(files.namelist())
        assert all(hashlib.sha256(files.read(f.path)).hexdigest() == f.sha256 for f in published.files)
        manifest = json.loads(files.read("manifest.json"))
    assert manifest == json.loads(json.dumps(published.manifest))
    assert manifest["training"]["final_metrics"]["train/loss"] == metric(events, "train/loss")[-1][1]
    assert manifest["evaluation"]["eval/action_error"] == metric(events, "eval/action_error")[-1][1]


def assert_exact_books(events: list, samples: dict[str, int]) -> None:
    """Every microsecond has one owner, every usage line one span, every sample one bill."""
    spans = {event.body.span_id: event.body for event in events if event.body.type == "span"}
    used = dict.fromkeys(spans, 0)
    billed = dict.fromkeys(samples, 0)
    for event in events:
        if event.body.type != "usage":
            continue
        for line in event.body.lines:
            if line.meter == "train.compute_us":
                used[event.body.span_id] += line.quantity
            elif event.body.billable:
                billed[event.job_id] += line.quantity
    for span in spans.values():
        assert sum(span.shares.values()) + span.overhead_us == span.busy_us
        assert used[span.span_id] == sum(span.shares.values())
    assert billed == samples


async def test_four_tenants_together_have_the_losses_of_four_alone(
    tmp_path: Path, datasets: Path, one_view: DatasetBinding, two_views: DatasetBinding
) -> None:
    settings = {"steps": 100, "batch_size": 2, "evaluate_every": 1000, "checkpoint_every": 1000}
    submits = [
        submit_message(binding, job_id=f"job-{tenant}", tenant_id=tenant, head=head, **settings)
        for tenant, binding, head in [
            ("a", one_view, MLP),
            ("b", two_views, MLP | {"horizon": 4}),
            ("c", one_view, OFT),
            ("d", two_views, GR00T),
        ]
    ]
    together = await losses_of(tmp_path / "together", datasets, *submits, window_ms=60_000)
    journal = Journal(tmp_path / "together" / "journal.sqlite3")
    sizes = [size for event in journal.read(after=0, limit=9999) for _, size in metric([event], "service/group_size")]
    assert np.mean(sizes) > 2, "they were hardly ever together: nothing is shown"
    for submit in submits:
        alone = await losses_of(tmp_path / submit.job_id, datasets, submit)
        assert len(alone[submit.job_id]) == 100
        np.testing.assert_allclose(together[submit.job_id], alone[submit.job_id], rtol=1e-6)


async def test_tenants_of_two_bases_train_at_the_same_time_and_only_one_base_serves_a_group(
    tmp_path: Path, datasets: Path, one_view: DatasetBinding, two_views: DatasetBinding
) -> None:
    config = make_config(tmp_path, datasets, window_ms=60_000)
    names = ("tiny-qwen3-vl", "small-qwen3-vl")
    bases = load_bases(replace(config, bases={name: BaseModelEntry(name=name, source=name) for name in names}))
    base_of = {}
    submits = []
    for number, (binding, head) in enumerate([(one_view, MLP), (two_views, GR00T), (two_views, MLP), (one_view, MLP)]):
        job_id, base = f"job{number}", names[number % 2]
        submit = submit_message(binding, job_id=job_id, tenant_id=f"t{number}", head=head, steps=8, batch_size=2)
        submits.append(submit.model_copy(update={"spec": submit.spec.model_copy(update={"base_model": base})}))
        base_of[job_id] = base
    async with running(config, bases) as runtime:
        for submit in submits:
            await runtime.master.submit(submit)
        for submit in submits:
            assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
        events = events_of(runtime)
    together: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.body.type == "usage":
            together[event.body.span_id].add(event.job_id)
    assert all(len({base_of[job_id] for job_id in group}) == 1 for group in together.values())
    assert {base_of[min(group)] for group in together.values() if len(group) == 2} == set(names)
    assert_exact_books(events, samples=dict.fromkeys(base_of, 16))


async def test_a_poisoned_tenant_fails_alone_and_its_mate_does_not_notice(
    tmp_path: Path,
    datasets: Path,
    one_view: DatasetBinding,
    two_views: DatasetBinding,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = submit_message(one_view, job_id="good", tenant_id="a", steps=12)
    bad = submit_message(two_views, job_id="bad", tenant_id="b", steps=12)
    alone = await losses_of(tmp_path / "alone", datasets, good)
    poison(monkeypatch, "two", at_batch=5)
    async with running(make_config(tmp_path / "both", datasets)) as runtime:
        await runtime.master.submit(bad)
        await runtime.master.submit(good)
        status = await ended(runtime, bad)
        assert (status.state, status.reason) == (WorkloadState.FAILED, "non_finite_loss")
        assert (await ended(runtime, good)).state is WorkloadState.SUCCEEDED
        events = events_of(runtime)
        assert runtime.partitions.live_bytes == 0
    assert metric([event for event in events if event.job_id == "good"], "train/loss") == alone["good"]
    ruined = [event.body for event in events if event.job_id == "bad" and event.body.type == "usage"][-1]
    assert (ruined.billable, ruined.reason) == (False, "step_failed")
    done = metric([event for event in events if event.job_id == "bad"], "train/loss")
    assert len(done) == status.step < 12
    assert_exact_books(events, samples={"good": 48, "bad": 4 * status.step})


def poison(monkeypatch: pytest.MonkeyPatch, dataset: str, *, at_batch: int) -> None:
    """From its ``at_batch``-th batch on, the dataset of this name yields an action that is not a number."""
    original, count = SampleSource.batch, 0

    def batch(source: SampleSource, refs, pictured=None):
        nonlocal count
        result = original(source, refs, pictured)
        if source.dataset.root.name == dataset:
            count += 1
            if count >= at_batch:
                result.actions_BHA[0, 0, 0] = np.nan
        return result

    monkeypatch.setattr(SampleSource, "batch", batch)


async def test_a_cancelled_job_stops_at_once_and_leaves_nothing_behind(
    tmp_path: Path, datasets: Path, one_view: DatasetBinding
) -> None:
    submit = submit_message(one_view, steps=100_000)
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(submit)
        while not metric(events_of(runtime, "job"), "train/loss"):
            await runtime.feed.read(after=runtime.journal.last_seq, limit=1, wait_s=5)
        await runtime.master.cancel("job", 1)
        cancelled_us = unix_us()
        status = await ended(runtime, submit, 10)
        events = events_of(runtime)
        assert (status.state, status.reason) == (WorkloadState.CANCELLED, "cancelled")
        assert runtime.partitions.live_bytes == runtime.queue.queue.live_bytes() == 0
        assert (await runtime.master.cancel("job", 1)).state is WorkloadState.CANCELLED
    spans = [event.body for event in events if event.body.type == "span"]  # a busy machine may tell of them later
    assert sum(span.started_at_us + span.busy_us > cancelled_us for span in spans) <= 1, "the step in progress"
    assert [event.body.state for event in events if event.body.type == "state"][-2:] == ["cancelling", "cancelled"]
    assert list((tmp_path / "partitions").iterdir()) == []


async def test_a_dataset_whose_files_changed_since_validation_fails_its_job(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    datasets = tmp_path_factory.mktemp("changing")
    path = make_dataset(datasets / "set")
    submit = submit_message(bind(datasets, path))
    (path / "README.md").write_text("added later")
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(submit)
        status = await ended(runtime, submit)
    assert (status.state, status.reason) == (WorkloadState.FAILED, "dataset_changed")
    assert "hash" in status.message


@pytest.mark.parametrize(
    ("damage", "reason"),
    [("folder", "dataset_missing"), ("video", "file_missing"), ("half", "frame_not_at_timestamp")],
)
async def test_a_dataset_that_breaks_after_its_submit_fails_its_job_alone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, damage: str, reason: str
) -> None:
    datasets = tmp_path_factory.mktemp("breaking")
    path = make_dataset(datasets / "set")
    bad = submit_message(bind(datasets, path), job_id="bad", tenant_id="b", steps=100_000)
    good = submit_message(bind(datasets, make_dataset(datasets / "good")), job_id="good", steps=20)
    waits = {"max_jobs": 1} if damage == "folder" else {"cache_bytes": 0}
    async with running(make_config(tmp_path, datasets, **waits)) as runtime:
        for submit in (good, bad):
            await runtime.master.submit(submit)
        while damage != "folder" and (await runtime.master.status("bad", 1)).step < 3:
            await asyncio.sleep(0.01)
        if damage == "folder":
            shutil.rmtree(path)
        for video in path.rglob("*.mp4"):
            if damage == "half":  # at one blow: a reader in between must not find the file missing
                half = video.with_suffix(".half")
                half.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
                half.replace(video)
            else:
                video.unlink()
        status = await ended(runtime, bad)
        assert (await ended(runtime, good)).state is WorkloadState.SUCCEEDED
        assert (status.state, status.reason) == (WorkloadState.FAILED, reason), status
        assert runtime.partitions.live_bytes == 0


async def test_more_jobs_than_may_be_mounted_wait_and_then_run(
    tmp_path: Path, datasets: Path, one_view: DatasetBinding
) -> None:
    submits = [submit_message(one_view, job_id=f"job{n}", steps=2) for n in range(3)]
    async with running(make_config(tmp_path, datasets, max_jobs=1)) as runtime:
        for submit in submits:
            await runtime.master.submit(submit)
        assert [(await ended(runtime, submit)).state for submit in submits] == [WorkloadState.SUCCEEDED] * 3
        states = [(e.job_id, e.body.state) for e in events_of(runtime) if e.body.type == "state"]
    assert states.index(("job0", "succeeded")) < states.index(("job1", "starting"))
    assert states.index(("job1", "succeeded")) < states.index(("job2", "starting"))


async def test_the_next_place_goes_to_the_tenant_that_has_the_fewest_and_a_cancelled_job_holds_nobody_up(
    tmp_path: Path, datasets: Path, one_view: DatasetBinding
) -> None:
    many = [submit_message(one_view, job_id=f"many{n}", tenant_id="many", steps=4) for n in range(4)]
    many[0] = submit_message(one_view, job_id="many0", tenant_id="many", steps=100_000)
    gone = submit_message(one_view, job_id="gone", tenant_id="one", steps=4)
    one = submit_message(one_view, job_id="one", tenant_id="one", steps=4)
    async with running(make_config(tmp_path, datasets, max_jobs=2)) as runtime:
        for submit in (*many, gone, one):
            await runtime.master.submit(submit)
        await runtime.master.cancel("gone", 1)
        for submit in (*many[1:], one):
            assert (await ended(runtime, submit)).state is WorkloadState.SUCCEEDED
        await runtime.master.cancel("many0", 1)
        assert (await ended(runtime, gone)).state is WorkloadState.CANCELLED
        started = [e.job_id for e in events_of(runtime) if e.body.type == "state" and e.body.state == "starting"]
    assert started == ["many0", "many1", "one", "many2", "many3"]
