"""Threads at one feature store: its bytes, and deletion while others read."""

import threading
from pathlib import Path

import pytest

from gpu_runtime.features.files import FileTier
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Entry
from gpu_runtime.features.segment import Segment
from gpu_runtime.features.store import FeatureStore
from tests.support.stored_rows import MIB, OURS, THEIRS, key, on_disk, rows, same


def test_many_threads_cannot_push_it_over_its_limits(tmp_path: Path) -> None:
    limits = {"ram_bytes": 40_000, "file_bytes": 90_000}
    store, over, done = FeatureStore(tmp_path, **limits), [], threading.Event()

    def watch() -> None:
        while not done.is_set():
            status = store.status()
            if status.ram_bytes > limits["ram_bytes"] or status.file_bytes > limits["file_bytes"]:
                over.append(status)
            assert store._files is not None
            with store._files._lock:  # else a scan adds up files of different moments
                found = on_disk(tmp_path)
            if found > limits["file_bytes"]:
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


def _recorded(work, number: int, failures: list[BaseException]) -> None:
    try:
        work(number)
    except BaseException as error:
        failures.append(error)


def test_after_every_single_write_the_bytes_are_within_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at inside the write itself, where a limit that is only restored afterwards would be seen."""
    limits, over, looks = {"ram_bytes": 30_000, "file_bytes": 60_000}, [], []
    store = FeatureStore(tmp_path, **limits)
    append, seal = Segment.append, Segment.seal

    def look() -> None:
        looks.append(on_disk(tmp_path))
        if looks[-1] > limits["file_bytes"] or store._ram.bytes > limits["ram_bytes"]:
            over.append((looks[-1], store._ram.bytes))

    def appended(self: Segment, name: FrameKey, entry: Entry) -> None:
        append(self, name, entry)
        look()

    def sealed(self: Segment, dtype: str, *, room: int) -> bool:
        done = seal(self, dtype, room=room)
        look()
        return done

    monkeypatch.setattr(Segment, "append", appended)
    monkeypatch.setattr(Segment, "seal", sealed)
    _together(4, lambda number: _put_all(store, OURS if number % 2 else THEIRS, frames=150))
    assert len(looks) > 100
    assert not over
    monkeypatch.setattr(FileTier, "_make_room", lambda self, size: True)  # a planted violation: nothing makes room
    _put_all(store, OURS, frames=150)
    assert over


def test_a_dataset_deleted_while_threads_read_it_gives_right_rows_or_none(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    names = [key(frame) for frame in range(40)]
    given = [store.open(OURS).put(name, rows(frame)) for frame, name in enumerate(names)]
    reading, gone = threading.Barrier(5), threading.Event()

    def read() -> None:
        for found, put in zip(store.open(OURS).take(names), given, strict=True):
            assert found is None or same(found, put)

    def work(number: int) -> None:
        reading.wait()
        if number == 0:
            store.forget(OURS)
            gone.set()
        while not gone.is_set():
            read()
        read()

    _together(5, work)
    assert store.open(OURS).take(names) == [None] * len(names)
    assert store.status().file_bytes == on_disk(tmp_path) == 0


def test_a_version_deleted_before_anything_was_kept_keeps_nothing_later(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=MIB, file_bytes=MIB)
    view = store.open(OURS)
    store.forget_version("ours")
    view.put(key(1), rows(1))
    assert view.missing([key(1)]) == 1
    assert on_disk(tmp_path) == 0


def _put_all(store: FeatureStore, dataset: str, *, frames: int) -> None:
    for frame in range(frames):
        store.open(dataset).put(key(frame, dataset), rows(frame))


def _together(count: int, work) -> None:
    failures: list[BaseException] = []
    workers = [threading.Thread(target=_recorded, args=(work, number, failures)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
