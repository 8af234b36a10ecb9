"""Feature handles: the same features as a second forward would give, bounded, and one tenant's own."""

import pytest
import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.handles import handle_of
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from tests.support.inference import (
    FakeBase,
    Records,
    ask,
    ask_oft,
    make_service,
    make_slot,
    observation,
    publish,
    running,
)

ROWS_BYTES = 4 * 16 * 4  # one observation at the query tap


@pytest.fixture
def base() -> FakeBase:
    return FakeBase()


@pytest.fixture
def oft(base: FakeBase) -> ServedPolicy:
    return ServedPolicy.freeze(make_slot("oft", base, standardize=False).policy, base)


def put(handles: FeatureHandles, tenant: str, policy: ServedPolicy, *seeds: int, slot: str = "job/1") -> list[str]:
    frames = [observation(seed, queries=4) for seed in seeds]
    rows = policy.backbone.encode(frames, [policy.taps] * len(frames))
    return [handles.put(tenant, slot, policy, frame, row) for frame, row in zip(frames, rows, strict=True)]


def frames_of(*seeds: int) -> list[VLAFeature]:
    return [observation(seed, queries=4) for seed in seeds]


def found(handles: FeatureHandles, tenant: str, *names: str) -> list[torch.Tensor]:
    """Rows of what must be kept."""
    rows = [one for name in names if (one := handles.peek(tenant, name)) is not None]
    assert len(rows) == len(names)
    return [one["query"] for one in rows]


def test_what_is_kept_is_what_the_forward_gave_and_the_oldest_is_evicted(base, oft):
    handles = FeatureHandles(2 * ROWS_BYTES)
    names = put(handles, "alice", oft, 1, 2, 3)
    assert [handles.holds("alice", name) for name in names] == [False, True, True]
    assert handles.peek("alice", names[0]) is None
    expected = [rows["query"] for rows in base.encode(frames_of(2, 3), [oft.taps] * 2)]
    assert all(map(torch.equal, found(handles, "alice", *names[1:]), expected))
    assert put(handles, "alice", oft, 1) == names[:1], "computed again, it is kept under the same name"
    assert handles.live_bytes == 2 * ROWS_BYTES


def test_on_the_real_base_too_kept_features_are_those_of_any_other_group_bit_for_bit():
    torch.set_num_threads(1)
    tiny = load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))
    policy = ServedPolicy.freeze(make_slot("oft", tiny, standardize=False).policy, tiny)
    handles, seeds = FeatureHandles(10**7), (1, 2, 3, 4, 5)
    names = put(handles, "alice", policy, *seeds)
    for chosen in (slice(0, 2), slice(4, 5)):
        again = [rows["query"] for rows in tiny.encode(frames_of(*seeds[chosen]), [policy.taps] * len(seeds[chosen]))]
        assert all(map(torch.equal, found(handles, "alice", *names[chosen]), again))


def test_a_handle_of_another_tenant_finds_nothing_even_for_the_same_picture(oft):
    handles = FeatureHandles(10**6)
    (mine,) = put(handles, "alice", oft, 1)
    (theirs,) = put(handles, "bob", oft, 1)
    assert mine != theirs
    assert [handles.peek("bob", mine), handles.peek("alice", theirs), handles.peek("carol", "x")] == [None] * 3
    assert not handles.holds("bob", mine)


def test_a_handle_names_everything_its_features_depend_on(oft, base):
    one = observation(1, queries=4)
    other_prefix = ServedPolicy.freeze(make_slot("gr00t", base, tap="merged").policy, base)
    names = {
        handle_of("alice", oft.prefix_hash, one),
        handle_of("bob", oft.prefix_hash, one),
        handle_of("alice", other_prefix.prefix_hash, one),
        handle_of("alice", oft.prefix_hash, observation(2, queries=4)),
        handle_of("alice", oft.prefix_hash, observation(1, words="pull", queries=4)),
        handle_of("alice", oft.prefix_hash, observation(1, queries=3)),
        handle_of("alice", oft.prefix_hash, VLAFeature(images=one.images * 2, instruction="push", query_tokens=4)),
    }
    assert len(names) == 7
    turned = VLAFeature(images=(one.images[0].reshape(16, 64, 3),), instruction="push", query_tokens=4)
    assert handle_of("alice", oft.prefix_hash, turned) not in names
    assert handle_of("alice", oft.prefix_hash, observation(1, queries=4)) in names


def test_new_weights_of_the_same_policy_keep_the_handles(base):
    slot = make_slot("oft", base, standardize=False)
    first, second = (ServedPolicy.freeze(slot.policy, base) for _ in range(2))
    handles = FeatureHandles(10**6)
    assert put(handles, "alice", first, 1) == put(handles, "alice", second, 1)
    assert handles.live_bytes == ROWS_BYTES


def test_room_comes_from_whoever_holds_most_so_a_flood_evicts_itself(oft):
    handles = FeatureHandles(6 * ROWS_BYTES)
    mine = put(handles, "alice", oft, 1, 2)
    put(handles, "flood", oft, *range(10, 40))
    assert [handles.holds("alice", name) for name in mine] == [True, True]
    assert handles.live_bytes == 6 * ROWS_BYTES


def test_what_was_used_last_is_evicted_last(oft):
    handles = FeatureHandles(2 * ROWS_BYTES)
    one, two = put(handles, "alice", oft, 1, 2)
    handles.peek("alice", one)
    put(handles, "alice", oft, 3)
    assert (handles.holds("alice", one), handles.holds("alice", two)) == (True, False)


def test_what_is_larger_than_the_store_is_never_kept_and_evicts_nobody(base, oft):
    handles = FeatureHandles(ROWS_BYTES)
    (small,) = put(handles, "alice", oft, 1)
    frame = observation(2)
    large = handles.put("bob", "job/1", oft, frame, {"merged": torch.zeros(100, 16)})
    assert (handles.holds("alice", small), handles.holds("bob", large)) == (True, False)


def test_kept_features_are_copies(base, oft):
    handles = FeatureHandles(10**6)
    frame = observation(1, queries=4)
    (rows,) = base.encode([frame], [oft.taps])
    name = handles.put("alice", "job/1", oft, frame, rows)
    rows["query"].zero_()
    assert found(handles, "alice", name)[0].any()


def test_a_slot_that_ends_takes_its_features_along_and_nobody_elses(oft):
    handles = FeatureHandles(10**6)
    mine, shared = put(handles, "alice", oft, 1, 2)
    (other,) = put(handles, "alice", oft, 3, slot="other/1")
    assert put(handles, "alice", oft, 2, slot="other/1") == [shared]
    put(handles, "bob", oft, 1)
    handles.release("alice", "job/1")
    assert [handles.holds("alice", name) for name in (mine, shared, other)] == [False, True, True]
    handles.release("alice", "other/1")
    handles.release("alice", "other/1")
    assert handles.live_bytes == ROWS_BYTES
    handles.release("bob", "job/1")
    assert handles.live_bytes == 0


def test_a_store_of_less_than_nothing_is_refused():
    with pytest.raises(ValueError, match="max_bytes: -1"):
        FeatureHandles(-1)


async def test_a_reply_carries_handles_when_features_are_to_be_kept(base, oft):
    handles = FeatureHandles(10**6)
    service = make_service(Records(), handles=handles)
    publish(service, "alice", oft)
    async with running(service):
        kept = await service.predict(ask_oft(seed=1, count=2, keep_features=True))
        plain = await service.predict(ask_oft(seed=2))
    assert (len(kept.handles), plain.handles) == (2, ())
    frames = ask(seed=1, count=2, queries=4).features
    again = [rows["query"] for rows in base.encode(frames, [oft.taps] * 2)]
    assert all(map(torch.equal, found(handles, "alice", *kept.handles), again))
