"""Stored features on their way into a step: what is staged, what is read again, what is left when it is over."""

import numpy as np
import pytest
import torch

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.sampler import FrameRef
from gpu_runtime.data.samples import SampleSource
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Rows
from gpu_runtime.protocol.specs import DatasetSelection
from gpu_runtime.training.frames import FrameRows, StagingRoom
from gpu_runtime.training.work import Frames, pack_batch, unpack_batch, unpack_frames
from tests.support.demonstrations import make_dataset

REFS = [FrameRef(0, 3), FrameRef(1, 2), FrameRef(0, 0)]
ROW_BYTES = 16


class Entries(dict[FrameKey, Rows]):
    """Everything put in is found, as it was put."""

    dataset = "version@hash"

    def take(self, keys: list[FrameKey]) -> list[Rows | None]:
        return [self.get(key) for key in keys]

    def missing(self, keys: list[FrameKey]) -> int:
        return sum(key not in self for key in keys)

    def put(self, key: FrameKey, features: Rows) -> Rows:
        self[key] = features
        return features


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SampleSource:
    dataset = LeRobotDataset.open(make_dataset(tmp_path_factory.mktemp("data") / "one"))
    return SampleSource(dataset, DatasetSelection(id="one", image_size=32), horizon=2)


def rows_of(source: SampleSource, room: StagingRoom) -> tuple[FrameRows, Entries, list[FrameKey]]:
    entries = Entries()
    rows = FrameRows(entries, source, "prefix", room)
    return rows, entries, rows.keys(REFS)


def one_row() -> Rows:
    return {"merged": torch.ones(1, ROW_BYTES // 4)}


def test_only_what_is_stored_and_has_room_is_staged_and_the_others_need_images(source: SampleSource) -> None:
    room = StagingRoom(ROW_BYTES)
    rows, _, keys = rows_of(source, room)
    assert rows.stage("p", keys) == [0, 1, 2]
    for key in keys[1:]:
        rows.put(key, one_row())
    assert rows.stage("q", keys) == [0, 2], "there is room for one"
    assert room.bytes == ROW_BYTES
    assert set(rows.known("q", keys)) == {keys[1], keys[2]}, "what was not staged is looked up again"


def test_staged_rows_outlive_their_eviction_and_go_with_their_partition(source: SampleSource) -> None:
    room = StagingRoom(3 * ROW_BYTES)
    rows, entries, keys = rows_of(source, room)
    rows.put(keys[0], one_row())
    assert rows.stage("p", keys) == [1, 2]
    entries.clear()
    assert set(rows.known("p", keys)) == {keys[0]}
    rows.drop("p")
    rows.drop("p")
    assert (room.bytes, rows.staged_partitions, rows.known("p", keys)) == (0, 0, {})


def test_a_closed_job_stages_nothing_and_holds_nothing(source: SampleSource) -> None:
    room = StagingRoom(3 * ROW_BYTES)
    rows, _, keys = rows_of(source, room)
    rows.put(keys[0], one_row())
    rows.stage("p", keys)
    rows.close()
    assert rows.stage("late", keys) == [0, 1, 2], "a reader that was under way when the job ended"
    rows.close()
    assert (room.bytes, rows.staged_partitions) == (0, 0)


def test_a_frame_is_named_by_its_place_its_words_and_the_prefix(source: SampleSource) -> None:
    rows, _, keys = rows_of(source, StagingRoom(0))
    assert [(key.episode, key.frame) for key in keys] == [(0, 3), (1, 2), (0, 0)]
    assert keys[0].instruction != keys[1].instruction
    assert rows.keys(REFS) == keys
    assert FrameRows(Entries(), source, "another", StagingRoom(0)).keys(REFS)[0] != keys[0]


def test_a_payload_holds_images_of_the_pictured_samples_only(source: SampleSource) -> None:
    frames = Frames(refs=tuple(REFS), pictured=(2,))
    arrays, metadata = pack_batch(source.batch(REFS, frames.pictured), frames)
    batch = unpack_batch(arrays, metadata)
    assert len(batch) == len(REFS)
    assert unpack_frames(arrays, batch) == frames
    np.testing.assert_array_equal(batch.images[0], source.batch(REFS).images[0][2:])
    none = source.batch(REFS, ())
    assert none.images[0].shape == (0, 32, 32, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("refs", np.zeros((2, 2), np.int64)), ("pictured", np.array([3])), ("pictured", np.array([0, 1]))],
)
def test_a_payload_that_contradicts_itself_is_refused_by_name(
    source: SampleSource, name: str, value: np.ndarray
) -> None:
    frames = Frames(refs=tuple(REFS), pictured=(2,))
    arrays, metadata = pack_batch(source.batch(REFS, frames.pictured), frames)
    batch = unpack_batch(arrays, metadata)
    with pytest.raises(ValueError, match=r"refs|pictured|images\[0\]"):
        unpack_frames(arrays | {name: value}, batch)
