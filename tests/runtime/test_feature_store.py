"""Kept features are the right ones or none, within their bytes, whatever happens to memory, files and threads."""

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Entry, Rows
from gpu_runtime.features.segment import Segment
from gpu_runtime.features.store import FeatureStore
from tests.support.stored_rows import MIB, OURS, THEIRS, key, on_disk, rows, same


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
    assert all(torch.allclose(put[tap], rows(i)[tap], rtol=2e-6) for i, put in enumerate(given) for tap in put)


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


def test_an_entry_that_can_never_fit_is_simply_not_kept(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=100, file_bytes=100)
    view = store.open(OURS)
    assert view.put(key(1), rows(1)).keys() == rows(1).keys()
    assert view.take([key(1)]) == [None]
    assert (store.status().ram_bytes, store.status().file_bytes) == (0, 0)


def test_room_comes_from_whoever_holds_most(tmp_path: Path) -> None:
    size = Entry.of(rows(0), torch.float16)[0].size
    store = FeatureStore(None, ram_bytes=10 * size, file_bytes=0)
    store.open(OURS).put(key(0), rows(0))
    flood = store.open(THEIRS)
    for frame in range(50):
        flood.put(key(frame, THEIRS), rows(frame))
    assert store.open(OURS).missing([key(0)]) == 0


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


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dtype": "bfloat16"}, "dtype: 'bfloat16', allowed: float16, float32"), ({"ram_bytes": -1}, "ram_bytes: -1")],
)
def test_a_setting_that_is_not_allowed_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureStore(None, **({"ram_bytes": 0, "file_bytes": 0} | options))
