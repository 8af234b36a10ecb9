"""Reuse of processes, what is kept warm, and how work is measured."""

import asyncio
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.environments.busy import BusyMeter
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import SessionSpec
from tests.support.environments import children, pool_of, still, wanted


async def pids_of(pool: EnvironmentPool, spec: SessionSpec) -> list[int]:
    async with await pool.open(spec) as session:
        return [process.pid for process in session.processes]


async def test_a_process_is_reused_for_the_same_environment_cameras_and_size_only() -> None:
    async with pool_of() as pool:
        first = await pids_of(pool, wanted(cameras=("top",)))
        assert await pids_of(pool, wanted(cameras=("top",), tenant="bob")) == first
        assert await pids_of(pool, wanted(cameras=())) != first
        assert await pids_of(pool, wanted(cameras=("top",), size=48)) != first
        assert await pids_of(pool, wanted("faulty/Never", cameras=("top",))) != first
        assert await pids_of(pool, wanted(cameras=("top",))) == first


async def test_a_reused_process_grows_to_more_environments_and_forgets_the_tries_before() -> None:
    async with pool_of() as pool:
        async with await pool.open(wanted(seats=1)) as small:
            await small.reset([1])
            await small.step(np.full((1, 3, 2), 0.5, np.float32))
            pid = small.processes[0].pid
        async with await pool.open(wanted(seats=3, processes=1)) as large:
            assert large.processes[0].pid == pid
            resets = await large.reset([1, 1, 1])
            assert len({reset.observation.state_S.tobytes() for reset in resets}) == 1
            results = await large.step(still(3, 20))
            assert [result.executed for result in results if result is not None] == [20, 20, 20]


async def test_two_sessions_never_share_a_process() -> None:
    async with pool_of() as pool:
        async with await pool.open(wanted()) as one, await pool.open(wanted()) as two:
            assert one.processes[0].pid != two.processes[0].pid


async def test_environments_are_spread_evenly_over_as_many_processes_as_needed() -> None:
    async with pool_of(seats_per_process=2) as pool:
        assert len(await pids_of(pool, wanted(seats=2))) == 1
        assert len(await pids_of(pool, wanted(seats=3))) == 2
        assert len(await pids_of(pool, wanted(seats=3, processes=3))) == 3


async def test_only_so_many_stay_warm_and_the_longest_unused_goes_first() -> None:
    async with pool_of(processes_warm=2) as pool:
        (first,), (second,), (third,) = [await pids_of(pool, wanted(size=size)) for size in (16, 32, 48)]
        assert pool.status().processes_warm == 2
        for _ in range(100):
            if first not in children():
                break
            await asyncio.sleep(0.05)
        assert sorted(children()) == sorted([second, third])


async def test_a_warm_process_that_died_meanwhile_is_replaced() -> None:
    async with pool_of() as pool:
        (first,) = await pids_of(pool, wanted())
        os.kill(first, signal.SIGKILL)
        await asyncio.sleep(0.2)
        async with await pool.open(wanted()) as session:
            assert session.processes[0].pid != first
            await session.reset([1])


async def test_a_process_that_has_grown_is_not_kept_for_the_next_tenant() -> None:
    async with pool_of(resident_bytes_max=90 * 2**20) as pool:  # above what reach takes, twice of it is not
        async with await pool.open(wanted()) as session:
            assert 45 * 2**20 < session.processes[0].resident_bytes < 90 * 2**20
        assert pool.status().processes_warm == 0


async def test_a_sessions_processes_get_none_of_the_runtimes_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOYNEXUS_RUNTIME_TOKEN", "a-secret-of-the-runtime")
    async with pool_of() as pool, await pool.open(wanted()) as session:
        environment = Path(f"/proc/{session.processes[0].pid}/environ").read_text()
    assert "PATH=" in environment
    assert "a-secret-of-the-runtime" not in environment


def test_time_in_which_calls_overlap_is_busy_once_and_counted_for_each() -> None:
    service = BusyMeter()
    mine, yours = BusyMeter(service), BusyMeter(service)
    with mine.running():
        time.sleep(0.02)
        with yours.running():
            time.sleep(0.02)
        middle = service.busy_us
    idle_from = service.busy_us
    time.sleep(0.02)
    assert service.busy_us == idle_from
    assert service.calls_us >= mine.calls_us + yours.calls_us
    assert 40_000 <= middle <= service.busy_us < service.calls_us
    assert 20_000 <= yours.busy_us < mine.busy_us <= service.busy_us


async def test_a_pool_measures_its_sessions() -> None:
    async with pool_of() as pool:
        async with await pool.open(wanted(seats=2, processes=2)) as session:
            await session.reset([1, 2])
            await session.step(still(2))
            assert 0 < session.busy.busy_us <= pool.busy.busy_us
            assert session.busy.busy_us < session.busy.calls_us  # its two processes work side by side
            assert session.steps == 4
