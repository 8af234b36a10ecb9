"""Published policies: frozen copies, kept while somebody needs them, one tenant's own."""

import gc
import weakref

import numpy as np
import pytest
import torch

from gpu_runtime.inference.errors import (
    InvalidPredict,
    PinReleased,
    SlotExists,
    UnknownSlot,
    UnknownVersion,
    VersionOrder,
)
from gpu_runtime.inference.messages import Mode
from gpu_runtime.inference.policy_store import PolicyStore
from gpu_runtime.inference.served_policy import Decision, ServedPolicy
from tests.support.inference import FakeBase, ask, make_actor_critic, make_slot, shake, training_batch


class Weights:
    """Something that can be watched going away."""


def gone(reference: weakref.ref) -> bool:
    gc.collect()
    return reference() is None


@pytest.fixture
def store() -> PolicyStore:
    store: PolicyStore = PolicyStore(keep=2)
    store.open("alice", "arm")
    return store


def test_the_last_versions_are_kept_and_older_ones_leave_the_memory(store):
    versions = [Weights() for _ in range(4)]
    watched = [weakref.ref(policy) for policy in versions]
    for number, policy in enumerate(versions, start=1):
        store.publish("alice", "arm", number, policy)
    del versions, policy
    assert store.versions("alice", "arm") == (3, 4)
    assert [gone(reference) for reference in watched] == [True, True, False, False]


def test_a_pinned_version_stays_until_its_last_pin_is_released(store):
    store.publish("alice", "arm", 1, first := Weights())
    watched = weakref.ref(first)
    pins = [store.pin("alice", "arm"), store.pin("alice", "arm", 1)]
    for number in (2, 3, 4):
        store.publish("alice", "arm", number, Weights())
    assert store.versions("alice", "arm") == (1, 3, 4)
    store.unpin(pins[0])
    assert pins[1].policy is first
    del first
    store.unpin(pins[1])
    assert store.versions("alice", "arm") == (3, 4)
    assert gone(watched), "a released pin keeps nothing alive"


def test_a_superseded_version_that_is_still_in_memory_can_be_pinned_again(store):
    store.publish("alice", "arm", 1, Weights())
    pin = store.pin("alice", "arm")
    for number in (2, 3):
        store.publish("alice", "arm", number, Weights())
    again = store.pin("alice", "arm", 1)
    store.unpin(pin)
    assert store.versions("alice", "arm") == (1, 2, 3)
    store.unpin(again)
    with pytest.raises(UnknownVersion, match=r"policy_version: 1 .*\[2, 3\]"):
        store.pin("alice", "arm", 1)


def test_versions_only_rise_and_latest_is_the_newest(store):
    assert store.latest("alice", "arm") is None
    with pytest.raises(UnknownVersion, match="none yet"):
        store.pin("alice", "arm")
    store.publish("alice", "arm", 5, Weights())
    for version in (5, 4):
        with pytest.raises(VersionOrder, match="above 5"):
            store.publish("alice", "arm", version, Weights())
    assert (store.latest("alice", "arm"), store.pin("alice", "arm").version) == (5, 5)


def test_a_foreign_slot_answers_like_a_missing_one(store):
    store.publish("alice", "arm", 1, Weights())
    messages = set()
    for tenant, slot in (("bob", "arm"), ("bob", "arm2"), ("alice", "arm2")):
        for action in (store.pin, store.close, store.versions, store.latest):
            with pytest.raises(UnknownSlot) as refusal:
                action(tenant, slot)
            messages.add(str(refusal.value).replace("arm2", "arm"))
    assert messages == {"slot arm does not exist"}
    with pytest.raises(UnknownSlot):
        store.publish("bob", "arm", 2, Weights())
    with pytest.raises(SlotExists):
        store.open("alice", "arm")


def test_a_pin_is_released_once(store):
    store.publish("alice", "arm", 1, Weights())
    pin = store.pin("alice", "arm")
    store.unpin(pin)
    with pytest.raises(PinReleased):
        store.unpin(pin)
    with pytest.raises(PinReleased):
        _ = pin.policy
    assert store.pinned() == 0


def test_a_slot_is_gone_once_it_is_closed_and_nobody_has_a_pin_of_it_any_more():
    heard: list[tuple[str, str]] = []
    store: PolicyStore = PolicyStore(on_gone=lambda *slot: heard.append(slot))
    for tenant in ("alice", "bob"):
        store.open(tenant, "arm")
        store.publish(tenant, "arm", 1, Weights())
    pins = [store.pin("alice", "arm"), store.pin("alice", "arm")]
    store.close("alice", "arm")
    store.unpin(pins[0])
    assert heard == []
    store.unpin(pins[1])
    assert heard == [("alice", "arm")]
    store.unpin(store.pin("bob", "arm"))
    store.close("bob", "arm")
    assert heard == [("alice", "arm"), ("bob", "arm")]


def test_at_least_the_newest_version_is_kept():
    with pytest.raises(ValueError, match="keep: 0"):
        PolicyStore(keep=0)


# --- what is published ---


@pytest.fixture
def base() -> FakeBase:
    return FakeBase()


def act(policy: ServedPolicy, base: FakeBase, mode: Mode = Mode.EVAL) -> Decision:
    request = ask(seed=1, count=2, queries=policy.query_tokens, mode=mode)
    return policy.act(base.encode(request.features, [policy.taps] * 2), request)


def test_training_goes_on_and_the_published_version_acts_as_when_it_was_published(base):
    slot = make_slot("oft", base, standardize=False)
    published = ServedPolicy.freeze(slot.policy, base)
    before = act(published, base).actions_BHA
    slot.train_step(*training_batch(slot, base), "p1")
    shake(slot, 5)
    assert np.array_equal(act(published, base).actions_BHA, before)
    assert not np.array_equal(act(ServedPolicy.freeze(slot.policy, base), base).actions_BHA, before)


def test_a_published_version_has_no_gradients_and_takes_none_away(base):
    slot = make_slot("oft", base, standardize=False)
    for parameter in slot.policy.head.parameters():
        parameter.grad = torch.ones_like(parameter)
    published = ServedPolicy.freeze(slot.policy, base)
    assert all(p.grad is None and not p.requires_grad for p in published.policy.head.parameters())
    assert all(p.grad is not None and p.requires_grad for p in slot.policy.head.parameters())


def test_exploration_and_critic_are_frozen_with_the_head_they_belong_to(base):
    slot = make_slot("oft", base, standardize=False)
    models = make_actor_critic(slot, "gaussian")
    published = ServedPolicy.freeze(models, base)
    first = {mode: act(published, base, mode) for mode in Mode}
    shake(slot, 5)
    with torch.no_grad():
        models.actor.log_std_A.add_(1)
        models.critic.out.weight.add_(1)
    for mode, before in first.items():
        after = act(published, base, mode)
        assert np.array_equal(after.actions_BHA, before.actions_BHA)
        assert mode is Mode.EVAL or np.array_equal(after.value, before.value)
    assert not np.array_equal(first[Mode.EVAL].actions_BHA, first[Mode.SAMPLE].actions_BHA)
    renewed = act(ServedPolicy.freeze(models, base), base, Mode.SAMPLE)
    assert not np.array_equal(renewed.value, first[Mode.SAMPLE].value)


def test_a_trace_is_in_model_space_and_its_actions_are_the_ones_sent(base):
    slot = make_slot("oft", base, standardize=False)
    decision = act(ServedPolicy.freeze(make_actor_critic(slot, "gaussian"), base), base, Mode.SAMPLE)
    sent_BCA = slot.policy.actions.denormalize(decision.trace["sample"].numpy())
    assert np.array_equal(np.asarray(sent_BCA, np.float32), decision.actions_BHA[:, :3])
    assert decision.trace["log_prob"].shape == (2, 3, 3)


def test_a_seeds_chunk_does_not_depend_on_the_other_observations_of_its_request(base):
    """A policy without exploration draws from one generator per call: every observation has a call of its own."""
    policy = ServedPolicy.freeze(make_slot("gr00t", base, tap="merged").policy, base)
    one, two = ask(seed=1, count=1), ask(seed=1, count=2)
    alone, beside = (policy.act(base.encode(r.features, [policy.taps] * len(r.seeds)), r) for r in (one, two))
    assert np.array_equal(alone.actions_BHA[0], beside.actions_BHA[0])


@pytest.mark.parametrize(
    ("progress", "fields", "message"),
    [
        (True, {"mode": Mode.SAMPLE}, r"progress: missing, allowed: \[0, 1\]"),
        (False, {"mode": Mode.SAMPLE, "progress_B": np.zeros(1)}, "progress: given, allowed: none"),
        (True, {"mode": Mode.EVAL, "progress_B": np.zeros(1)}, "progress: given, allowed: none"),
    ],
)
def test_a_critic_is_told_the_progress_if_and_only_if_it_asks_for_it(base, progress, fields, message):
    models = make_actor_critic(make_slot("oft", base, standardize=False), "gaussian", progress=progress)
    with pytest.raises(InvalidPredict, match=message):
        ServedPolicy.freeze(models, base).tokens(ask(queries=4, **fields))


def test_only_a_policy_with_a_critic_has_a_value(base):
    policy = ServedPolicy.freeze(make_slot("oft", base, standardize=False).policy, base)
    with pytest.raises(InvalidPredict, match="mode: value, allowed: eval and sample"):
        policy.tokens(ask(queries=4, mode=Mode.VALUE))


def test_a_policy_whose_tap_the_base_does_not_have_cannot_be_published(base):
    policy = make_slot("gr00t", base, tap="merged").policy
    base.tap_width = lambda tap: FakeBase.tap_width(base, "layer:7")
    with pytest.raises(ValueError, match="layer:7"):
        ServedPolicy.freeze(policy, base)
