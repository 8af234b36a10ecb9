"""Kept features are the right ones or none, within their bytes, whatever happens to memory, files and threads."""

import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpu_runtime.features.files import FileTier
from gpu_runtime.features.keys import FrameKey, dataset_name
from gpu_runtime.features.rows import Entry, Rows
from gpu_runtime.features.segment import Segment
from gpu_runtime.features.store import FeatureStore

OURS, THEIRS = dataset_name("ours", "1" * 8), dataset_name("theirs", "1" * 8)
MIB = 2**20


def key(frame: int, dataset: str = OURS) -> FrameKey:
    return FrameKey(dataset=dataset, episode=frame // 10, frame=frame % 10, prefix="p", instruction="push")


def rows(seed: int, length: int = 6, width: int = 32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "layer:-1": torch.randn(length, width, generator=generator),
        "vision": torch.randn(length + 3, width // 2, generator=generator),
    }


def same(left: Rows, right: Rows) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[tap], right[tap]) for tap in left)


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("tier", ["memory", "file"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_taken_is_bit_for_bit_what_put_returned(tmp_path: Path, dtype: str, tier: str) -> None:
    ram_bytes, file_bytes = (MIB, 0) if tier == "memory" else (0, MIB)
    view = FeatureStore(tmp_path, ram_bytes=ram_bytes, file_bytes=file_bytes, dtype=dtype).open(OURS)
    given = [view.put(key(frame), rows(frame)) for frame in range(12)]
    taken = view.take([key(frame) for frame in reversed(range(12))])
    assert all(found is not None and same(found, put) for found, put in zip(reversed(taken), given, strict=True))
    exact = [same(put, rows(frame)) for frame, put in enumerate(given)]
    assert all(exact) if dtype == "float32" else not any(exact)
    assert all(torch.allclose(put[tap], rows(i)[tap], rtol=1e-3) for i, put in enumerate(given) for tap in put)


@pytest.mark.parametrize("worst", [7e4, float("inf"), float("nan")])
def test_what_half_precision_cannot_hold_stays_single_wholly(tmp_path: Path, worst: float) -> None:
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    view, odd = store.open(OURS), rows(1)
    odd["vision"][2, 3] = worst
    view.put(key(1), odd)
    view.put(key(2), rows(2))
    (found,) = view.take([key(1)])
    assert found is not None
    assert all(torch.equal(found[tap].nan_to_num(), odd[tap].nan_to_num()) for tap in odd)
    assert store.status().overflowed == 1


def test_whoever_changes_what_he_was_given_changes_nothing_in_the_store(tmp_path: Path) -> None:
    view = FeatureStore(None, ram_bytes=MIB, file_bytes=0, dtype="float32").open(OURS)
    view.put(key(1), rows(1))["vision"].zero_()
    (first,) = view.take([key(1)])
    assert first is not None
    first["vision"].zero_()
    (again,) = view.take([key(1)])
    assert again is not None
    assert same(again, rows(1))


def test_a_door_to_one_dataset_opens_no_other(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=MIB, file_bytes=MIB)
    store.open(OURS).put(key(1), rows(1))
    other = store.open(THEIRS)
    assert other.take([key(1, THEIRS)]) == [None]
    for ask in (lambda: other.take([key(1)]), lambda: other.missing([key(1)]), lambda: other.put(key(1), rows(1))):
        with pytest.raises(ValueError, match=r"dataset: 'ours@1+', allowed: 'theirs@1+'"):
            ask()


class Model(RuleBasedStateMachine):
    """Against a dictionary: any answer but None is the last one put, and no limit is ever passed."""

    @initialize(ram=st.integers(0, 6000), file=st.integers(0, 12_000))
    def begin(self, ram: int, file: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.limits = {"ram_bytes": ram, "file_bytes": file}
        self.store = FeatureStore(self.folder, **self.limits)
        self.known: dict[FrameKey, Rows] = {}
        self.gone: set[str] = set()

    @rule(frame=st.integers(0, 15), dataset=st.sampled_from([OURS, THEIRS]))
    def put(self, frame: int, dataset: str) -> None:
        name = key(frame, dataset)
        self.known[name] = self.store.open(dataset).put(name, rows(hash(name) % 2**31))

    @rule(frames=st.lists(st.integers(0, 15), max_size=8), dataset=st.sampled_from([OURS, THEIRS]))
    def take(self, frames: list[int], dataset: str) -> None:
        names = [key(frame, dataset) for frame in frames]
        for name, found in zip(names, self.store.open(dataset).take(names), strict=True):
            assert found is None or (dataset not in self.gone and same(found, self.known[name]))

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = FeatureStore(self.folder, **self.limits)
        for dataset in self.gone:
            assert dataset not in self.store._names()
            self.store.forget(dataset)

    @rule(dataset=st.sampled_from([THEIRS]))
    def forget(self, dataset: str) -> None:
        self.store.forget_version(dataset.partition("@")[0])
        self.store.forget(dataset)
        self.gone.add(dataset)

    @invariant()
    def within_its_bytes(self) -> None:
        if not hasattr(self, "store"):
            return
        status = self.store.status()
        assert status.ram_bytes <= self.limits["ram_bytes"]
        assert status.file_bytes == on_disk(self.folder) <= self.limits["file_bytes"]


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_the_model_would_notice_rows_of_another_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted violation: entries that are read from the wrong place."""
    view = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB).open(OURS)
    given = [view.put(key(frame), rows(frame)) for frame in range(2)]
    honest = Segment.read
    monkeypatch.setattr(
        Segment,
        "read",
        lambda self, wanted, *, pinned: honest(
            self, [(name, self.extents[key(1)]) for name, _ in wanted], pinned=pinned
        ),
    )
    (found,) = view.take([key(0)])
    assert found is not None
    assert not same(found, given[0])


def test_many_threads_cannot_push_it_over_its_limits(tmp_path: Path) -> None:
    limits = {"ram_bytes": 40_000, "file_bytes": 90_000}
    store, over, done = FeatureStore(tmp_path, **limits), [], threading.Event()

    def watch() -> None:
        while not done.is_set():
            status = store.status()
            if status.ram_bytes > limits["ram_bytes"] or status.file_bytes > limits["file_bytes"]:
                over.append(status)
            if (found := _measured(tmp_path)) > limits["file_bytes"]:
                over.append(found)

    def work(number: int) -> None:
        dataset = OURS if number % 2 else THEIRS
        view = store.open(dataset)
        for frame in range(150):
            name = key(frame % 60, dataset)
            view.put(name, rows(frame % 60))
            (found,) = view.take([name])
            assert found is None or same(found, view.put(name, rows(frame % 60)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    failures: list[BaseException] = []
    workers = [threading.Thread(target=_recorded, args=(work, number, failures)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    done.set()
    watcher.join()
    assert not failures
    assert not over
    assert store.status().evicted > 0


def _measured(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _recorded(work, number: int, failures: list[BaseException]) -> None:
    try:
        work(number)
    except BaseException as error:
        failures.append(error)


def test_an_entry_that_can_never_fit_is_simply_not_kept(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=100, file_bytes=100)
    view = store.open(OURS)
    assert view.put(key(1), rows(1)).keys() == rows(1).keys()
    assert view.take([key(1)]) == [None]
    assert (store.status().ram_bytes, store.status().file_bytes) == (0, 0)


def test_room_comes_from_whoever_holds_most(tmp_path: Path) -> None:
    size = Entry.of(rows(0), torch.float16).size
    store = FeatureStore(None, ram_bytes=10 * size, file_bytes=0)
    store.open(OURS).put(key(0), rows(0))
    flood = store.open(THEIRS)
    for frame in range(50):
        flood.put(key(frame, THEIRS), rows(frame))
    assert store.open(OURS).missing([key(0)]) == 0


def test_of_all_who_miss_a_frame_together_one_computes_it() -> None:
    store = FeatureStore(None, ram_bytes=MIB, file_bytes=0)
    computed, begun = [], threading.Barrier(8)
    results: dict[int, list[Rows]] = {}

    def compute(places: list[int]) -> list[Rows]:
        computed.extend(places)
        time.sleep(0.05)
        return [rows(place) for place in places]

    def work(number: int) -> None:
        begun.wait()
        results[number] = store.open(OURS).fetch([key(0), key(1), key(0)], compute)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(computed) == [0, 1]
    assert all(same(found[0], results[0][0]) and same(found[2], found[0]) for found in results.values())


def test_a_failed_computation_fails_its_caller_only() -> None:
    store = FeatureStore(None, ram_bytes=MIB, file_bytes=0)
    inside, go_on = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def breaks(places: list[int]) -> list[Rows]:
        inside.set()
        go_on.wait()
        raise RuntimeError("out of memory")

    def work() -> None:
        try:
            store.open(OURS).fetch([key(0)], breaks)
        except RuntimeError as error:
            failed.append(error)

    first = threading.Thread(target=work)
    first.start()
    inside.wait()
    threading.Timer(0.05, go_on.set).start()
    (found,) = store.open(OURS).fetch([key(0)], lambda places: [rows(0) for _ in places])
    first.join()
    assert len(failed) == 1
    assert torch.allclose(found["vision"], rows(0)["vision"], rtol=1e-3)


def test_a_deleted_dataset_is_gone_from_memory_and_disk_also_while_it_is_read(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=MIB, file_bytes=MIB)
    view, other = store.open(OURS), store.open(THEIRS)
    given = [view.put(key(frame), rows(frame)) for frame in range(20)]
    other.put(key(0, THEIRS), rows(0))
    files = store._files
    assert files is not None
    segment = files._segments[OURS][0]
    segment.readers += 1  # as a read that has just begun
    store.forget_version("ours")
    assert [path for path in tmp_path.iterdir() if path.name == segment.path.name] == []
    assert files.bytes > on_disk(tmp_path)  # the reader still holds them
    assert same(
        segment.read([(key(3), segment.extents[key(3)])], pinned=False)[key(3)].rows(torch.device("cpu")), given[3]
    )
    files._done(segment, damaged=[])
    assert files.bytes == on_disk(tmp_path)
    assert view.take([key(3)]) == [None]
    view.put(key(3), rows(3))  # a job that has not noticed yet
    assert view.take([key(3)]) == [None]
    assert other.missing([key(0, THEIRS)]) == 0


def test_the_next_process_takes_up_what_was_sealed_and_nothing_torn(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    given = [store.open(OURS).put(key(frame), rows(frame)) for frame in range(20)]
    store.open(THEIRS).put(key(0, THEIRS), rows(0))
    store.close()
    (damaged,) = [path for path in tmp_path.glob("*.json") if THEIRS in path.read_text()]
    damaged.write_text(damaged.read_text()[:-9])
    again = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    taken = again.open(OURS).take([key(frame) for frame in range(20)])
    assert all(found is not None and same(found, put) for found, put in zip(taken, given, strict=True))
    assert again.open(THEIRS).missing([key(0, THEIRS)]) == 1
    assert again.status().file_bytes == on_disk(tmp_path)


def test_entries_rounded_otherwise_are_not_taken_up(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB, dtype="float16")
    store.open(OURS).put(key(1), rows(1))
    store.close()
    exact = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB, dtype="float32")
    assert exact.open(OURS).missing([key(1)]) == 1
    assert on_disk(tmp_path) == 0


def test_a_damaged_entry_is_a_miss_and_its_neighbours_are_not(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    for frame in range(3):
        store.open(OURS).put(key(frame), rows(frame))
    (path,) = tmp_path.glob("*.features")
    with path.open("r+b") as stream:
        stream.seek(Entry.of(rows(0), torch.float16).size + 5)
        stream.write(b"\xff\xff\xff\xff")
    found = store.open(OURS).take([key(frame) for frame in range(3)])
    assert [rows is None for rows in found] == [False, True, False]
    assert store.open(OURS).missing([key(1)]) == 1


WRITER = """
import sys, torch
from pathlib import Path
from gpu_runtime.features.store import FeatureStore
from tests.runtime.test_feature_store import OURS, key, rows
store = FeatureStore(Path(sys.argv[1]), ram_bytes=0, file_bytes=400_000)
for frame in range(10**9):
    store.open(OURS).put(key(frame), rows(frame % 50))
    print(frame, flush=True)
"""


def test_kill_9_in_the_middle_of_writing_leaves_right_entries_or_none(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 120:  # several segments are sealed by then
            break
    child.send_signal(signal.SIGKILL)
    child.wait()
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=400_000)
    found = store.open(OURS).take([key(frame) for frame in range(2000)])
    kept = [(frame, row) for frame, row in enumerate(found) if row is not None]
    assert kept
    assert all(torch.allclose(row["vision"], rows(frame % 50)["vision"], rtol=1e-3) for frame, row in kept)
    assert store.status().file_bytes == on_disk(tmp_path) <= 400_000


def test_a_disk_that_fails_costs_speed_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FeatureStore(tmp_path, ram_bytes=MIB, file_bytes=MIB)
    view = store.open(OURS)

    def full(self: Segment, name: FrameKey, entry: Entry) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Segment, "append", full)
    view.put(key(1), rows(1))
    assert view.missing([key(1)]) == 0
    assert "No space left" in (store.status().problem or "")


def test_a_folder_that_cannot_be_made_leaves_memory(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    store = FeatureStore(tmp_path / "taken", ram_bytes=MIB, file_bytes=MIB)
    store.open(OURS).put(key(1), rows(1))
    assert store.open(OURS).missing([key(1)]) == 0
    assert store.status().problem is not None


def test_the_free_space_of_the_disk_is_left_alone(tmp_path: Path) -> None:
    tier = FileTier(tmp_path, MIB, dtype="float16", min_free_bytes=2**62)
    tier.put(key(1), Entry.of(rows(1), torch.float16))
    assert tier.bytes == on_disk(tmp_path) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dtype": "bfloat16"}, "dtype: 'bfloat16', allowed: float16, float32"), ({"ram_bytes": -1}, "ram_bytes: -1")],
)
def test_a_setting_that_is_not_allowed_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureStore(None, **({"ram_bytes": 0, "file_bytes": 0} | options))
