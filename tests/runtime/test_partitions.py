"""Partition payloads: whole files, counted bytes, nothing left behind."""

import errno
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.store import files, partitions
from gpu_runtime.store.errors import DiskFull, PartitionsFull, PartitionUnreadable
from gpu_runtime.store.partitions import PartitionStore

ARRAYS = {"images": np.arange(24, dtype=np.uint8).reshape(2, 4, 3), "mask": np.array([[True, False]])}


def test_arrays_and_metadata_come_back_as_they_went_in(tmp_path: Path) -> None:
    store = PartitionStore(tmp_path, 10_000)
    size = store.put("p1", ARRAYS, {"work": "train/1"})
    arrays, metadata = store.open("p1")
    assert metadata == {"work": "train/1"}
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
    assert (tmp_path / "p1.safetensors").stat().st_size == size == store.live_bytes


def test_clearing_returns_the_bytes_and_may_be_repeated(tmp_path: Path) -> None:
    store = PartitionStore(tmp_path, 10_000)
    store.put("p1", ARRAYS, {})
    store.clear("p1")
    store.clear("p1")
    assert store.live_bytes == 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PartitionUnreadable):
        store.open("p1")


def test_the_limit_counts_every_live_partition(tmp_path: Path) -> None:
    store = PartitionStore(tmp_path, 300)
    store.put("p1", ARRAYS, {})
    with pytest.raises(PartitionsFull):
        store.put("p2", ARRAYS, {})
    assert [path.name for path in tmp_path.iterdir()] == ["p1.safetensors"]
    store.clear("p1")
    store.put("p2", ARRAYS, {})


def test_a_disk_without_room_refuses_before_and_during_the_write(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(DiskFull, match="must stay free"):
        PartitionStore(tmp_path, 10_000, min_free_bytes=2**62).put("p1", ARRAYS, {})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    store = PartitionStore(tmp_path, 10_000)
    with pytest.raises(DiskFull):
        store.put("p1", ARRAYS, {})
    assert (store.live_bytes, list(tmp_path.iterdir())) == (0, [])


def test_a_sweep_keeps_what_is_known_and_removes_the_rest_with_half_written_files(tmp_path: Path) -> None:
    store = PartitionStore(tmp_path, 10_000)
    for name in ("p1", "p2"):
        store.put(name, ARRAYS, {})
    (tmp_path / ".p3.safetensors.77.tmp").write_bytes(b"half")
    again = PartitionStore(tmp_path, 10_000)
    assert again.live_bytes == store.live_bytes
    assert again.sweep({"p2"}) == [".p3.safetensors.77.tmp", "p1.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["p2.safetensors"]
    assert again.live_bytes == (tmp_path / "p2.safetensors").stat().st_size


def test_a_truncated_file_is_unreadable_not_wrong(tmp_path: Path) -> None:
    store = PartitionStore(tmp_path, 10_000)
    store.put("p1", ARRAYS, {})
    path = tmp_path / "p1.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(PartitionUnreadable):
        store.open("p1")


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "a" * 201])
def test_an_id_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="partition id"):
        PartitionStore(tmp_path, 10_000).put(name, ARRAYS, {})


def test_an_id_is_used_once(tmp_path: Path) -> None:
    store = partitions.PartitionStore(tmp_path, 10_000)
    store.put("p1", ARRAYS, {})
    with pytest.raises(ValueError, match="already stored"):
        store.put("p1", ARRAYS, {})
