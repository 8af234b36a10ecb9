"""Pools, sessions and actions for tests of the environment service."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np

from gpu_runtime.environments.base import EnvironmentKind, StateKind
from gpu_runtime.environments.pool import EnvironmentPool, PoolLimits
from gpu_runtime.environments.session import Deadlines, SessionSpec
from gpu_runtime.environments.slot import TryRules
from tests.support.faulty_environments import FAULTY_FAMILIES, TRIGGER

REACH = "joynexus/Reach-v0"
ENVIRONMENTS_OWN = TryRules()
SAFE = Deadlines(open_s=60, reset_s=30, step_s=30)


@contextlib.asynccontextmanager
async def pool_of(device: str = "cpu", **limits: object) -> AsyncIterator[EnvironmentPool]:
    """A pool that also knows the faulty family; whatever a test did, no child of it may be left."""
    bounds = PoolLimits(**{"deadlines": SAFE, **limits})  # type: ignore[arg-type]
    pool = EnvironmentPool(bounds, families=FAULTY_FAMILIES, device=device)
    try:
        yield pool
    finally:
        await pool.close()
    assert children() == []


def wanted(
    env_id: str = REACH,
    seats: int = 1,
    *,
    tenant: str = "alice",
    processes: int | None = None,
    cameras: tuple[str, ...] | None = (),
    size: int = 32,
    state: StateKind = StateKind.PROPRIOCEPTION,
    rules: TryRules = ENVIRONMENTS_OWN,
) -> SessionSpec:
    """A session's specification; without cameras unless named."""
    kind = EnvironmentKind(env_id=env_id, cameras=cameras, size=size, state=state)
    return SessionSpec(tenant_id=tenant, kind=kind, seats=seats, processes=processes, rules=rules)


def still(seats: int, chunk: int = 2) -> np.ndarray:
    """Actions that leave the points where they are, [B, C, 2]."""
    return np.zeros((seats, chunk, 2), np.float32)


def triggering(seats: int, slot: int, chunk: int = 2) -> np.ndarray:
    """The last action of one environment sets off its fault, [B, C, 2]."""
    actions = still(seats, chunk)
    actions[slot, -1, 0] = TRIGGER
    return actions


def children() -> list[int]:
    """Environment processes that this process started and that the system still knows, zombies included."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # One that is ending, or a zombie, has lost its command line.
            command = Path(f"/proc/{name}/cmdline").read_text()
            stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == os.getpid() and ("environments.worker" in command or not command):
                found.append(int(name))
    return found
