"""The feature store's files: restarts, damage, full disks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpu_runtime.features.files import FileTier
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Entry
from gpu_runtime.features.segment import Segment
from gpu_runtime.features.store import FeatureStore
from tests.support.stored_rows import MIB, OURS, THEIRS, key, on_disk, rows, same


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
        stream.seek(Entry.of(rows(0), torch.float16)[0].size + 5)
        stream.write(b"\xff\xff\xff\xff")
    found = store.open(OURS).take([key(frame) for frame in range(3)])
    assert [rows is None for rows in found] == [False, True, False]
    assert store.open(OURS).missing([key(1)]) == 1


WRITER = """
import sys, torch
from pathlib import Path
from gpu_runtime.features.store import FeatureStore
from tests.support.stored_rows import OURS, key, rows
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
    tier.put(key(1), Entry.of(rows(1), torch.float16)[0])
    assert tier.bytes == on_disk(tmp_path) == 0


def test_an_index_that_names_another_frame_is_not_believed(tmp_path: Path) -> None:
    """One flipped digit would hand out the rows of a neighbour, whole and with a right checksum of their own."""
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    store.open(OURS).put(key(1), rows(1))
    store.close()
    (index,) = tmp_path.glob("*.index.json")
    text = index.read_text()
    index.write_text(text.replace('"frame": 1', '"frame": 2'))
    again = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    assert again.open(OURS).take([key(1), key(2)]) == [None, None]
    assert on_disk(tmp_path) == again.status().file_bytes == 0


def test_data_cut_short_behind_a_whole_index_are_not_taken_up(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    store.open(OURS).put(key(1), rows(1))
    store.close()
    (data,) = tmp_path.glob("*.features")
    data.write_bytes(data.read_bytes()[:-64])
    assert FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB).open(OURS).missing([key(1)]) == 1
    assert on_disk(tmp_path) == 0


def test_files_that_are_not_the_stores_own_do_not_stop_it(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    put = store.open(OURS).put(key(1), rows(1))
    store.close()
    (index,) = tmp_path.glob("*.index.json")
    (tmp_path / "copy.index.json").write_bytes(index.read_bytes())
    (tmp_path / "00000009.index.json").write_bytes(b"\xff\x00")
    again = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    (found,) = again.open(OURS).take([key(1)])
    assert found is not None
    assert same(found, put)
    assert again.status().problem is None
    assert {path.suffix for path in tmp_path.iterdir()} == {".features", ".json"}
    assert again.status().file_bytes == on_disk(tmp_path)


def test_a_smaller_limit_after_a_restart_holds_from_the_start(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, ram_bytes=0, file_bytes=MIB)
    for frame in range(200):
        store.open(OURS).put(key(frame), rows(frame))
    store.close()
    assert on_disk(tmp_path) > 150_000
    FeatureStore(tmp_path, ram_bytes=0, file_bytes=150_000)
    assert 0 < on_disk(tmp_path) <= 150_000


def test_half_a_write_leaves_no_bytes_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FeatureStore(tmp_path, ram_bytes=MIB, file_bytes=MIB)
    put = store.open(OURS).put(key(0), rows(0))
    honest, calls = os.pwrite, []

    def half(file: int, data: memoryview, offset: int) -> int:
        calls.append(offset)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return honest(file, data[: len(data) // 2], offset)

    monkeypatch.setattr(os, "pwrite", half)
    store.open(OURS).put(key(1), rows(1))
    assert store.open(OURS).missing([key(1)]) == 0  # memory has it
    assert store.status().file_bytes == on_disk(tmp_path) == Entry.of(rows(0), torch.float16)[0].size
    (found,) = store.open(OURS).take([key(0)])
    assert found is not None
    assert same(found, put)
