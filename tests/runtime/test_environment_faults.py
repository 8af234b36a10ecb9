"""Simulators that hang, crash, leak or lie, as real processes: one session is lost by name, nobody else notices."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.environments.errors import EnvironmentLost, LostReason, SessionError
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import Deadlines, EnvironmentSession
from tests.support.environments import children, pool_of, still, triggering, wanted

QUICK = Deadlines(open_s=60, reset_s=2, step_s=2)


async def lost_by(pool: EnvironmentPool, fault: str, **options: object) -> EnvironmentLost:
    """Set off a fault in the last of three environments (two processes); the session's seats must be free at once."""
    session = await pool.open(wanted(f"faulty/{fault}", seats=3, processes=2, **options))  # type: ignore[arg-type]
    await session.reset([1, 2, 3])
    with pytest.raises(EnvironmentLost) as caught:
        await session.step(triggering(3, 2))
    assert pool.status().seats == {}
    assert session.lost is caught.value
    with pytest.raises(EnvironmentLost, match=caught.value.reason.value):
        await session.reset([1, 2, 3])
    await session.close()
    assert pool.status().lost == {caught.value.reason: 1}
    assert (pool.status().processes_used, pool.status().processes_warm) == (0, 1)
    return caught.value


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ("Segfault", LostReason.CRASHED, r"signal 11 \(SIGSEGV\)"),
        ("Exit", LostReason.CRASHED, "status 7"),
        ("Raise", LostReason.FAILED, "ZeroDivisionError: the solver divided by zero"),
        ("Ask", LostReason.FAILED, "EOFError"),
        ("NanReward", LostReason.NOT_FINITE, "rewards is .*nan"),
        ("NanState", LostReason.NOT_FINITE, "state is .*nan"),
        ("SmallState", LostReason.MALFORMED, r"state is float32 \(3,\), not float32 \(4,\)"),
        ("Garbage", LostReason.MALFORMED, "not a msgpack message"),
        ("HugeFrame", LostReason.MALFORMED, "a frame of 4294967295 bytes"),
    ],
)
async def test_a_faulty_simulator_loses_its_session_under_the_faults_own_name(
    fault: str, reason: LostReason, words: str
) -> None:
    async with pool_of() as pool:
        error = await lost_by(pool, fault)
    assert error.reason is reason
    with pytest.raises(EnvironmentLost, match=words):
        raise error


async def test_what_a_simulator_prints_does_no_harm() -> None:
    async with pool_of() as pool, await pool.open(wanted("faulty/Chatter")) as session:
        await session.reset([1])
        assert (await session.step(triggering(1, 0)))[0] is not None


async def test_a_step_that_hangs_is_killed_at_its_deadline_and_other_sessions_go_on_meanwhile() -> None:
    async with pool_of(deadlines=QUICK) as pool:
        healthy = await pool.open(wanted(tenant="bob", seats=2))
        await healthy.reset([1, 2])
        hanging = await pool.open(wanted("faulty/Hang", seats=2, processes=2))
        await hanging.reset([1, 2])
        pids = [process.pid for process in hanging.processes]
        started_s = time.monotonic()
        call = asyncio.create_task(hanging.step(triggering(2, 1)))
        longest_s, calls = 0.0, 0
        while not call.done():
            begun_s = time.monotonic()
            await healthy.reset([1, 2])
            await healthy.step(still(2))
            longest_s, calls = max(longest_s, time.monotonic() - begun_s), calls + 1
            await asyncio.sleep(0.01)
        with pytest.raises(EnvironmentLost, match="step took more than 2 s") as caught:
            await call
        assert caught.value.reason is LostReason.DEADLINE
        assert 1.9 < time.monotonic() - started_s < 8
        assert calls > 20
        assert longest_s < 1
        assert pool.status().seats == {"bob": 2}
        assert (await healthy.step(still(2)))[0] is not None
        await wait_for_death(pids[1])
        assert pids[0] in children()  # its neighbour is well and waits for the next session


async def wait_for_death(pid: int) -> None:
    for _ in range(100):
        if pid not in children():
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"process {pid} is still there")


async def test_a_reset_that_hangs_is_killed_at_its_deadline() -> None:
    async with pool_of(deadlines=QUICK) as pool:
        session = await pool.open(wanted("faulty/Hang"))
        with pytest.raises(EnvironmentLost, match="reset took more than 2 s"):
            await session.reset([666])
        assert pool.status().seats == {}
        with pytest.raises(EnvironmentLost, match="reset took more than 2 s"):
            await session.step(still(1))


async def test_a_process_killed_from_outside_is_reported_as_such() -> None:
    async with pool_of() as pool:
        session = await pool.open(wanted("faulty/Hang", seats=2))
        await session.reset([1, 2])
        call = asyncio.create_task(session.step(triggering(2, 0)))
        await asyncio.sleep(0.2)
        os.kill(session.processes[0].pid, signal.SIGKILL)
        with pytest.raises(EnvironmentLost, match=r"signal 9 \(SIGKILL\)") as caught:
            await call
        assert caught.value.reason is LostReason.CRASHED
        assert pool.status().seats == {}


async def test_a_process_killed_between_calls_is_noticed_by_the_next_one() -> None:
    async with pool_of() as pool:
        session = await pool.open(wanted(seats=1))
        await session.reset([1])
        os.kill(session.processes[0].pid, signal.SIGKILL)
        with pytest.raises(EnvironmentLost) as caught:
            await session.step(still(1))
        assert caught.value.reason is LostReason.CRASHED


async def test_a_process_that_outgrows_its_bound_is_killed_long_before_its_deadline() -> None:
    async with pool_of(resident_bytes_max=300 * 2**20) as pool:
        session = await pool.open(wanted("faulty/Leak"))
        await session.reset([1])
        with pytest.raises(EnvironmentLost, match=r"MiB resident; at most 300 are allowed") as caught:
            await session.step(triggering(1, 0))
        assert caught.value.reason is LostReason.MEMORY


async def test_a_simulator_that_crashes_while_it_starts_holds_no_seat() -> None:
    async with pool_of() as pool:
        with pytest.raises(EnvironmentLost, match="SIGSEGV"):
            await pool.open(wanted("faulty/CrashAtStart"))
        assert (pool.status().seats, pool.status().lost) == ({}, {LostReason.CRASHED: 1})


async def test_a_simulator_that_takes_too_long_to_start_holds_no_seat() -> None:
    async with pool_of(deadlines=Deadlines(open_s=0.01)) as pool:
        with pytest.raises(EnvironmentLost, match=r"open took more than 0\.01 s"):
            await pool.open(wanted())
        assert (pool.status().seats, pool.status().lost) == ({}, {LostReason.DEADLINE: 1})


async def test_a_cancelled_call_gives_its_process_up_and_frees_the_seats() -> None:
    async with pool_of() as pool:
        session = await pool.open(wanted("faulty/Hang"))
        await session.reset([1])
        call = asyncio.create_task(session.step(triggering(1, 0)))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert pool.status().seats == {}
        with pytest.raises(EnvironmentLost, match="cancelled"):
            await session.reset([1])


async def test_a_pool_closed_in_the_midst_of_calls_and_waits_leaves_nothing() -> None:
    async with pool_of(seats_total=1) as pool:
        session = await pool.open(wanted("faulty/Hang"))
        await session.reset([1])
        call = asyncio.create_task(session.step(triggering(1, 0)))
        waiting = asyncio.create_task(pool.open(wanted()))
        await asyncio.sleep(0.1)
        await pool.close()
        with pytest.raises(EnvironmentLost):
            await call
        with pytest.raises(SessionError, match="service is closed"):
            await waiting
        with pytest.raises(SessionError, match="service is closed"):
            await pool.open(wanted())
        assert (pool.status().seats, pool.status().processes_used) == ({}, 0)


async def test_faults_of_one_tenant_change_no_result_of_another() -> None:
    async def rewards(session: EnvironmentSession) -> np.ndarray:
        await session.reset([5, 6])
        chunks = [await session.step(np.full((2, 2, 2), 0.3, np.float32)) for _ in range(5)]
        return np.stack([result.rewards_C for chunk in chunks for result in chunk if result is not None])

    async with pool_of() as pool, await pool.open(wanted(tenant="bob", seats=2)) as session:
        quiet = await rewards(session)
        crashing = asyncio.gather(*(lost_by_any(pool, fault) for fault in ("Segfault", "NanReward", "Raise")))
        assert np.array_equal(await rewards(session), quiet)
        await crashing
        assert np.array_equal(await rewards(session), quiet)
        assert pool.status().seats == {"bob": 2}
        assert sum(pool.status().lost.values()) == 3


async def lost_by_any(pool: EnvironmentPool, fault: str) -> None:
    session = await pool.open(wanted(f"faulty/{fault}"))
    await session.reset([1])
    with pytest.raises(EnvironmentLost):
        await session.step(triggering(1, 0))


ORPHAN = """
import asyncio, sys
from tests.support.environments import pool_of, triggering, wanted

async def main():
    async with pool_of() as pool:
        session = await pool.open(wanted("faulty/Hang"))
        await session.reset([1])
        print(session.processes[0].pid, flush=True)
        await session.step(triggering(1, 0))

asyncio.run(main())
"""


def test_killing_the_runtime_in_the_midst_of_a_step_takes_its_environments_along() -> None:
    runtime = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True)
    assert runtime.stdout is not None
    pid = int(runtime.stdout.readline())
    time.sleep(0.2)
    assert "environments.worker" in Path(f"/proc/{pid}/cmdline").read_text()
    runtime.kill()
    runtime.wait()
    runtime.stdout.close()
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}") or " Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("an environment process outlived its runtime")
