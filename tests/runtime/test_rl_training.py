"""Chunks that the inference service played go through the device step: beside demonstrations, and no one's business.

Shapes: N chunks, C executed steps per chunk, A action dims.
"""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.messages import Mode
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.record import record_step
from gpu_runtime.training.rl.advantages import assemble
from gpu_runtime.training.rl.batch import RlBatch, empty_batch, pack_rl_batch
from gpu_runtime.training.rl.experience import Decision, Episode
from gpu_runtime.training.step import DeviceStep, Member, StepOutcome
from gpu_runtime.training.work import Work, pack_batch
from tests.support.inference import Records, ask, make_service, make_slot, observation, publish, running
from tests.support.policies import Problem
from tests.support.rl_training import rl_job

PLAYED = {"oft": ("oft", 4), "mlp": ("mlp", 0), "sde": ("gr00t", 0), "noise": ("gr00t", 0)}
_ids = itertools.count()


@pytest.fixture(scope="module")
def base() -> Backbone:
    torch.set_num_threads(1)
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@pytest.fixture
def handles() -> FeatureHandles:
    return FeatureHandles(10**8)


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return PartitionStore(tmp_path, 10**8)


def make(base: Backbone, case: str = "mlp", algorithm: str = "ppo", **changes: Any) -> RlSlot:
    """A slot of a job on the real base; the same every time. Its actions are about as large as actions are."""
    policy = make_slot(PLAYED[case][0], base).policy
    with torch.no_grad():
        for name, parameter in policy.head.named_parameters():
            parameter.mul_(0.25 if "out." in name else 1)
    return RlSlot.create(policy, rl_job(algorithm, case=case, **changes))


async def play(slot: RlSlot, base: Backbone, handles: FeatureHandles, *, tenants: tuple[str, ...] = ("alice",)):
    """Episodes of each tenant, all asked for at once: a batch each, from the service's own replies."""
    service = make_service(Records(), handles=handles)
    policy = ServedPolicy.freeze(slot.models, base)
    queries = slot.query_tokens
    for tenant in tenants:
        publish(service, tenant, policy)
    async with running(service):
        asked = [
            [
                ask(tenant, seed=at, count=1 + at % 3, queries=queries, mode=Mode.SAMPLE, keep_features=True)
                for at in range(4)
            ]
            for tenant in tenants
        ]
        replies = await asyncio.gather(*(service.predict(request) for group in asked for request in group))
    played = iter(zip([request for group in asked for request in group], replies, strict=True))
    return [_batch(slot, [next(played) for _ in range(4)]) for _ in tenants]


def _batch(slot: RlSlot, played: list[Any]) -> RlBatch:
    """One episode per request, paid by its noise."""
    episodes = []
    for number, (request, reply) in enumerate(played):
        decisions = tuple(
            Decision(
                feature=feature,
                state_S=request.state_BS[at],
                handle=reply.handles[at],
                trace={name: value[at].numpy() for name, value in reply.trace.items()},
                value=None if reply.value is None else float(reply.value[at]),
                progress=None,
                version=0,
                rewards_C=reply.actions_BHA[at, : slot.models.actor.executed, 0],
                executed=slot.models.actor.executed,
            )
            for at, feature in enumerate(request.features)
        )
        episodes.append(
            Episode(
                seed=number,
                group=number // 2,
                decisions=decisions,
                terminated=True,
                truncated=False,
                success_once=True,
                success_at_end=True,
                env_return=0.0,
                steps=sum(decision.executed for decision in decisions),
                final_value=None,
                initial_state=str(number),
            )
        )
    assert slot.job is not None
    return assemble(slot.job.algorithm, episodes)


def member(store: PartitionStore, base: Backbone, slot: Any, batch: RlBatch | SampleBatch, tenant: str) -> Member:
    partition_id = f"p{next(_ids)}"
    store.put(partition_id, *(pack_rl_batch(batch) if isinstance(batch, RlBatch) else pack_batch(batch)))
    job = MountedJob(job_id=tenant, attempt=1, tenant_id=tenant, slot=slot, backbone=base, checkpoint_every=9)
    return Member(partition_id=partition_id, job=job, work=Work(purpose=Purpose.TRAIN, step=slot.step + 1))


def step(store: PartitionStore, members: list[Member], handles: FeatureHandles | None = None) -> StepOutcome:
    outcome = DeviceStep(store, DeviceClock("cpu"), handles).run(members)
    span = record_step(outcome, leased_at_us=0).entries[0].body
    assert sum(span.shares.values()) + span.overhead_us == span.busy_us
    return outcome


def demonstrations(base: Backbone, seed: int = 0) -> tuple[Any, SampleBatch]:
    """A slot of imitation and a batch for it."""
    frames = [observation(500 + seed + at) for at in range(6)]
    batch = Problem().batch(6)[1]
    return make_slot("mlp", base, seed=5), replace(batch, images=(np.stack([frame.images[0] for frame in frames]),))


@pytest.mark.parametrize("case", list(PLAYED))
async def test_the_log_probability_of_the_rollout_is_the_trainers_grouped_or_alone(case, base, handles, store):
    slot = make(base, case, "grpo" if case == "noise" else "ppo")
    alone, *_ = await play(slot, base, handles)
    grouped, _ = await play(slot, base, handles, tenants=("alice", "bob"))
    for batch in (alone, grouped):
        one = member(store, base, make(base, case, "grpo" if case == "noise" else "ppo"), batch, "alice")
        step(store, [one], handles)
        assert one.failure is None
        assert one.metrics["train/log_prob_gap_max"] < 1e-5
        assert one.metrics["train/feature_hits"] == 1
        assert (one.inputs, one.tokens) == ([], 0)


async def test_features_that_were_evicted_are_computed_again_with_the_same_result(base, handles, store):
    (batch,) = await play(make(base), base, handles)
    found = []
    for kept in (handles, None):
        one = member(store, base, make(base), batch, "alice")
        step(store, [one], kept)
        assert one.failure is None
        found.append(one)
    held, again = found
    assert again.metrics.pop("train/feature_hits") == 0
    assert held.metrics.pop("train/feature_hits") == 1
    assert len(again.inputs) == len(batch)
    assert again.metrics == held.metrics
    assert weights(again) == weights(held)


def weights(one: Member) -> dict[str, bytes]:
    return {name: p.detach().numpy().tobytes() for name, p in one.job.slot.named_parameters().items()}


async def test_equal_observations_run_once(base, handles, store):
    (batch,) = await play(make(base), base, handles)
    rows = [0, 0, 1, 0, 1]
    repeated = RlBatch(
        images=tuple(view[rows] for view in batch.images),
        instructions=("push",) * 5,
        handles=("",) * 5,
        state_NS=batch.state_NS[:5],
        trace={name: array[:5] for name, array in batch.trace.items()},
        value_N=batch.value_N[:5],
        advantage_N=batch.advantage_N[:5],
        returns_N=batch.returns_N[:5],
        mask_NC=batch.mask_NC[:5],
        version_N=batch.version_N[:5],
        episode_N=batch.episode_N[:5],
    )
    one = member(store, base, make(base), repeated, "alice")
    step(store, [one])
    assert one.failure is None
    assert (len(one.inputs), one.samples) == (2, 5)


async def test_a_handle_of_another_tenant_ends_the_step_of_whoever_presents_it(base, handles, store):
    slot = make(base)
    mine, theirs = await play(slot, base, handles, tenants=("alice", "bob"))
    before = weights(member(store, base, make(base), mine, "alice"))
    thief = member(store, base, make(base), replace(mine, handles=theirs.handles), "alice")
    honest = member(store, base, make(base), theirs, "bob")
    step(store, [thief, honest], handles)
    assert thief.failure is not None
    assert thief.failure.reason == "unknown_feature_handle"
    assert weights(thief) == before
    assert honest.applied


async def test_no_tenants_update_depends_on_who_else_is_in_the_group(base, handles, store):
    slot = make(base)
    mine, theirs = await play(slot, base, handles, tenants=("alice", "bob"))
    alone = member(store, base, make(base), mine, "alice")
    step(store, [alone])
    sft_alone = member(store, base, *demonstrations(base), "carol")
    step(store, [sft_alone])
    together = [
        member(store, base, make(base, "mlp", "ppo", training={"seed": 9}), theirs, "bob"),
        member(store, base, make(base), mine, "alice"),
        member(store, base, *demonstrations(base), "carol"),
    ]
    step(store, together)
    assert [one.failure for one in together] == [None] * 3
    assert together[1].metrics == alone.metrics
    assert weights(together[1]) == weights(alone)
    assert together[2].metrics == sft_alone.metrics
    assert weights(together[0]) != weights(together[1]), "else the group could have been one tenant's"


async def test_nan_in_one_tenants_batch_undoes_its_step_and_no_other(base, handles, store):
    slot = make(base)
    mine, theirs = await play(slot, base, handles, tenants=("alice", "bob"))
    bad = member(store, base, make(base), replace(mine, advantage_N=mine.advantage_N * np.float32("nan")), "alice")
    before = weights(bad)
    good = member(store, base, make(base), theirs, "bob")
    outcome = step(store, [bad, good], handles)
    assert bad.failure is not None
    assert bad.failure.reason == "non_finite_loss"
    assert weights(bad) == before
    assert good.applied
    usage = {e.tenant_id: e.body for e in record_step(outcome, leased_at_us=0).entries if e.body.type == "usage"}
    assert (usage["alice"].billable, usage["bob"].billable) == (False, True)


async def test_an_update_is_billed_by_its_chunks_once_and_its_metrics_have_their_names(base, handles, store):
    (batch,) = await play(make(base), base, handles)
    one = member(store, base, make(base), batch, "alice")
    one.job.dropped_stale = 3
    entries = record_step(step(store, [one], handles), leased_at_us=0).entries
    usage = next(entry.body for entry in entries if entry.body.type == "usage")
    assert (usage.lines[0].meter, usage.lines[0].quantity) == ("train.samples", len(batch))
    recorded = next(entry.body for entry in entries if entry.body.type == "metrics")
    assert recorded.step == 1
    assert recorded.values["rollout/dropped_stale"] == 3
    wanted = {"train/loss", "train/policy_loss", "train/value_loss", "train/entropy", "train/approx_kl"}
    wanted |= {"train/clip_fraction", "train/dual_clip_fraction", "train/explained_variance", "train/log_prob_gap"}
    wanted |= {"train/grad_norm_actor", "train/grad_norm_critic", "train/lr", "train/epochs", "train/samples"}
    wanted |= {"train/feature_hits", "rollout/staleness_mean", "rollout/staleness_max", "service/group_size"}
    assert wanted - recorded.values.keys() <= {"train/explained_variance"}, "which needs a critic that has values"


def test_a_batch_without_chunks_costs_its_time_and_no_samples(base, store):
    one = member(store, base, make(base, "mlp", "grpo"), empty_batch(3), "alice")
    entries = record_step(step(store, [one]), leased_at_us=0).entries
    usage = next(entry.body for entry in entries if entry.body.type == "usage")
    assert [line.meter for line in usage.lines] == ["train.compute_us"]
    assert one.applied
    assert one.job.slot.policy_version == 1


def test_a_payload_of_the_other_kind_is_refused(base, store):
    _, batch = demonstrations(base)
    one = member(store, base, make(base), batch, "alice")
    step(store, [one])
    assert one.failure is not None
    assert one.failure.reason == "rollout_mismatch"
