"""New policy versions appear while requests are under way: each request acts with its own, and nothing waits."""

import asyncio
import random

import numpy as np
import pytest

from gpu_runtime.inference.errors import (
    UnknownSlot,
)
from gpu_runtime.inference.served_policy import Decision, ServedPolicy
from tests.support.inference import (
    FakeBase,
    Records,
    ask_oft,
    make_service,
    make_slot,
    publish,
    running,
)

TENANTS = ("alice", "bob", "carol")


@pytest.fixture
def records() -> Records:
    return Records()


class Versioned(ServedPolicy):
    """Acts with its number, and knows whether the store has dropped it."""

    def __init__(self, oft: ServedPolicy, version: int) -> None:
        super().__init__(oft.policy, oft.backbone)
        self.version, self.freed = version, False

    def act(self, features, request) -> Decision:
        assert not self.freed, "acted after it was freed"
        return Decision(actions_BHA=np.full((len(features), 1, 1), self.version, np.float32))


async def test_publishing_under_load_pauses_nobody_and_never_serves_a_wrong_or_freed_version(records):
    base = FakeBase(seconds=0.001)
    oft = ServedPolicy.freeze(make_slot("oft", base, standardize=False).policy, base)
    service = make_service(records, batch_tokens=200)
    live: dict[tuple[str, int], Versioned] = {}
    served: list[tuple[int | str, int, int]] = []
    rng = random.Random(7)

    def publish_next(tenant: str, version: int) -> None:
        policy = live[tenant, version] = Versioned(oft, version)
        service.policies.publish(tenant, "arm", version, policy)
        kept = {id(policy) for slot in all_slots() for policy in slot.versions.values()}
        for old in live.values():
            old.freed = old.freed or id(old) not in kept

    def all_slots():
        return [*service.policies._slots.values(), *service.policies._closed]

    async def session(tenant: str, number: int) -> None:
        for turn in range(25):
            latest = service.policies.latest(tenant, "arm")
            wanted = rng.choice(["latest", latest, max(1, latest - 1)])
            request = ask_oft(tenant, seed=number, session_id=str(number), policy_version=wanted)
            reply = await service.predict(request)
            expected = latest if wanted == "latest" else wanted
            served.append((expected, reply.policy_version, int(reply.actions_BHA[0, 0, 0])))
            if turn % 5 == 0:
                await asyncio.sleep(0.001)

    async def trainer(tenant: str) -> None:
        for version in range(2, 60):
            publish_next(tenant, version)
            await asyncio.sleep(0.002)

    for tenant in TENANTS:
        service.policies.open(tenant, "arm")
        publish_next(tenant, 1)
    async with running(service):
        await asyncio.gather(
            *(trainer(tenant) for tenant in TENANTS), *(session(tenant, n) for tenant in TENANTS for n in range(4))
        )
    assert len(served) == 3 * 4 * 25
    assert all(expected == said == acted for expected, said, acted in served)
    assert len({acted for _, _, acted in served}) > 10, "versions really changed under way"
    assert service.policies.kept() == 3 * 2


async def test_a_slot_that_is_closed_under_way_still_answers_what_it_admitted(records):
    base = FakeBase(seconds=0.02)
    oft = ServedPolicy.freeze(make_slot("oft", base, standardize=False).policy, base)
    service = make_service(records)
    publish(service, "alice", oft)
    async with running(service):
        asked = asyncio.create_task(service.predict(ask_oft()))
        await asyncio.sleep(0.005)
        service.policies.close("alice", "arm")
        assert service.policies.kept() == 1
        with pytest.raises(UnknownSlot):
            await service.predict(ask_oft())
        assert (await asked).policy_version == 1
    assert service.policies.kept() == 0
