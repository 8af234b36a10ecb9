"""A picture that was seen goes through the vision tower once; results are those of a tower that runs every time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.layout import ImageGrid
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.step import PredictMember, PredictStep
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.backbones.vision_reuse import VisionOutputs, VisionReuse
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.ids import RequestId
from gpu_runtime.training.clock import DeviceClock
from tests.support.backbones import ragged_group, random_feature, taps_of
from tests.support.inference import ask, make_slot

GRID = ImageGrid(2, 2, 2)
TINY = BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl")


@pytest.fixture(scope="module")
def plain() -> Qwen3VLBackbone:
    return load_backbone(TINY)


@pytest.fixture
def keeping() -> Qwen3VLBackbone:
    return load_backbone(TINY, vision_cache_bytes=2**24)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Tower:
    """Counts what runs; a picture's rows are its own bytes, so that a row of another picture shows."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    def __call__(self, images, grids, deepstack: bool) -> VisionOutputs:
        self.ran.append(len(images))
        rows = torch.cat([torch.from_numpy(image.reshape(4, -1).astype(np.float32)) for image in images])
        return VisionOutputs(last_PD=rows, deepstack=(2 * rows, 3 * rows) if deepstack else ())


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def look(reuse: VisionReuse, tower: Tower, seeds: list[int], scope: str, *, deepstack: bool = True) -> VisionOutputs:
    """Rows of these pictures, held against the tower's own."""
    images = [picture(seed) for seed in seeds]
    found = reuse.outputs(images, [GRID] * len(seeds), [scope] * len(seeds), deepstack=deepstack, run=tower)
    expected = Tower()(images, [GRID] * len(seeds), deepstack)
    assert torch.equal(found.last_PD, expected.last_PD)
    assert len(found.deepstack) == len(expected.deepstack)
    assert all(torch.equal(a, b) for a, b in zip(found.deepstack, expected.deepstack, strict=True))
    return found


ONE = 3 * 4 * 768 * 4
"""Bytes kept of one picture of this tower."""


def test_equal_pictures_of_one_forward_run_once_and_different_ones_all() -> None:
    reuse, tower = VisionReuse(0), Tower()
    look(reuse, tower, [1, 2, 1, 3, 1], "")
    look(reuse, tower, [1, 2], "")
    assert tower.ran == [3, 2]
    assert reuse.counts.live_bytes == 0


def test_pictures_that_differ_between_the_compared_pixels_only_are_told_apart() -> None:
    reuse, tower = VisionReuse(0), Tower()
    first, second = picture(1), picture(1)
    second[5, 5, 0] ^= 1
    found = reuse.outputs([first, second], [GRID] * 2, ["", ""], deepstack=True, run=tower)
    assert tower.ran == [2]
    assert not torch.equal(found.last_PD[:4], found.last_PD[4:])


def test_a_picture_is_known_in_later_calls_of_its_scope_and_of_no_other() -> None:
    reuse, tower = VisionReuse(10 * ONE), Tower()
    for scope in ("alice", "alice", "bob", "bob", ""):
        look(reuse, tower, [1, 2], scope)
    assert tower.ran == [2, 2, 2], "alice's, bob's, and whoever has no scope"
    assert (reuse.counts.hits, reuse.counts.misses) == (4, 4)


def test_a_picture_that_one_call_shows_twice_is_counted_once() -> None:
    reuse, tower = VisionReuse(10 * ONE), Tower()
    look(reuse, tower, [1, 1, 2], "alice")
    assert (reuse.counts.hits, reuse.counts.misses) == (0, 2)
    look(reuse, tower, [1, 1, 3], "alice")
    assert (reuse.counts.hits, reuse.counts.misses) == (1, 3)


def test_rows_kept_without_deepstack_do_not_serve_who_needs_it() -> None:
    reuse, tower = VisionReuse(10 * ONE), Tower()
    look(reuse, tower, [1], "alice", deepstack=False)
    look(reuse, tower, [1], "alice")
    assert tower.ran == [1, 1]


def test_the_bound_is_never_exceeded_and_room_comes_from_the_scope_that_holds_most() -> None:
    reuse, tower = VisionReuse(4 * ONE), Tower()
    look(reuse, tower, [1], "bob")
    for seed in range(10, 30):
        look(reuse, tower, [seed], "alice")
        assert reuse.counts.live_bytes <= 4 * ONE
    ran = len(tower.ran)
    look(reuse, tower, [1], "bob")
    look(reuse, tower, [27, 28, 29], "alice")
    assert len(tower.ran) == ran, "alice's flood pushed out her own only"
    look(VisionReuse(ONE - 1), tower, [1], "alice")
    with pytest.raises(ValueError, match="vision_cache_bytes: -1, allowed: 0"):
        VisionReuse(-1)


def test_threads_that_share_it_get_their_own_pictures_rows() -> None:
    reuse = VisionReuse(3 * ONE)

    def work(thread: int) -> None:
        for turn in range(60):
            look(reuse, Tower(), [turn % 5, thread], f"tenant {thread % 2}")
            assert reuse.counts.live_bytes <= 3 * ONE

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_features_with_kept_pictures_are_those_without_bit_for_bit(
    plain: Qwen3VLBackbone, keeping: Qwen3VLBackbone
) -> None:
    group = ragged_group(seed=3, samples=8, views_min=0)
    taps = [taps_of(feature) for feature in group]
    expected = plain.encode(group, taps)
    scoped = [replace(feature, scope="alice") for feature in group]
    mixed = [*scoped[:3], *group[3:]]
    for asked, order in ((scoped, range(8)), (scoped[::-1], range(7, -1, -1)), (mixed, range(8))):
        for index, rows in zip(order, keeping.encode(asked, [taps[i] for i in order]), strict=True):
            assert all(torch.equal(rows[tap], expected[index][tap]) for tap in taps[index])
    assert keeping.vision_reuse.counts.hits > 0


def test_changing_the_rows_one_got_changes_nothing_that_is_kept(keeping: Qwen3VLBackbone) -> None:
    feature = replace(random_feature(np.random.default_rng(0)), scope="alice")
    before = keeping.encode([feature], [{"vision"}])[0]["vision"].clone()
    for _ in range(2):
        keeping.encode([feature], [{"vision"}])[0]["vision"].zero_()
    assert torch.equal(keeping.encode([feature], [{"vision"}])[0]["vision"], before)


def test_predictions_of_one_tenant_know_its_pictures_and_never_anothers(keeping: Qwen3VLBackbone) -> None:
    policy = ServedPolicy.freeze(make_slot("mlp", keeping).policy, keeping)
    step = PredictStep(DeviceClock("cpu"), None)

    def predict(tenant: str) -> np.ndarray:
        request = ask(tenant)
        member = PredictMember(request_id=RequestId("1"), request=request, policy=policy, tokens=1)
        outcome = step.run([member])
        assert outcome.members[0].failure is None
        return outcome.members[0].decision.actions_BHA

    seen = []
    for tenant in ("alice", "alice", "bob"):
        seen.append((predict(tenant), keeping.vision_reuse.counts.hits))
    assert [hits for _, hits in seen] == [0, 1, 1]
    assert all(np.array_equal(actions, seen[0][0]) for actions, _ in seen)


def test_a_feature_without_scope_is_kept_for_no_later_call(keeping: Qwen3VLBackbone) -> None:
    feature = VLAFeature(images=(picture(1),), instruction="push")
    keeping.encode([feature], [{"vision"}])
    keeping.encode([feature], [{"vision"}])
    assert keeping.vision_reuse.counts.live_bytes == 0
