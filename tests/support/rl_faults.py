"""Ways to hold up or upset the services of a runtime while a reinforcement-learning job is at work."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace

from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.ids import JobId
from tests.support.rl_jobs import WAIT_S, Job


def bump_version(job: Job, *, by: int) -> None:
    """As if so many updates had come between two looks at the queue."""
    slot = job.mounted.slot
    slot.step += by  # type: ignore[union-attr]
    job.runtime.queue.queue.set_policy_version(JobId(job.mounted.key), slot.step)


def pause_leases(runtime: LocalRuntime) -> Callable[[], None]:
    """The trainer finds nothing to do until what is returned is called."""
    runtime.queue.next_group = lambda: None  # type: ignore[method-assign]

    def go_on() -> None:
        del runtime.queue.next_group
        runtime.queue.changed.notify()

    return go_on


def block(executor: Executor) -> threading.Event:
    """Keep its one thread busy until the event is set."""
    release = threading.Event()
    executor.submit(release.wait, WAIT_S)
    return release


def block_training(runtime: LocalRuntime) -> threading.Event:
    return block(runtime.training.compute)


def block_inference(runtime: LocalRuntime) -> threading.Event:
    assert runtime.inference._compute is not None
    return block(runtime.inference._compute)


def shorten_deadlines(runtime: LocalRuntime, **seconds: float) -> None:
    """Of calls of environments that are opened from now on."""
    limits = runtime.pool.limits
    runtime.pool.limits = replace(limits, deadlines=replace(limits.deadlines, **seconds))
