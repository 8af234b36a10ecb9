"""Jobs that run into a cap: each step costs 1 and takes a second of the device."""

import time
from decimal import Decimal
from typing import Any

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Job
from tenants.billing.usage.selectors import spent_of_job
from tests.support.factories import moment
from tests.support.jobs import relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person
from tests.support.usage import set_price

Key = tuple[str, int]
SECOND_US = 1_000_000


def set_cap_prices(*, samples: int = 16) -> None:
    """A step of so many samples costs 1, its time nothing."""
    since = moment("2026-02-01T00:00:00")
    set_price("train.samples", "1", per=samples, valid_from=since)
    set_price("train.compute_us", "0", per=1, valid_from=since)


def set_clock(runtime: InMemoryRuntime) -> None:
    """What the runtime tells happens now, so that it is this month's."""
    runtime.now_us = time.time_ns() // 1000 - 5 * SECOND_US


def running(person: Person, runtime: InMemoryRuntime, **fields: Any) -> tuple[Job, Key]:
    job, key = start_job(person, runtime, **fields)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    relay_all(runtime)
    return reread(job), key


def steps(runtime: InMemoryRuntime, key: Key, count: int, *, begin: int = 1) -> None:
    """Steps one after the other, each told before the next is made."""
    for step in range(begin, begin + count):
        runtime.train_step([key], step, busy_us=SECOND_US)
        relay_all(runtime)


def stopped(job: Job) -> str:
    """Why a job is being stopped; empty while it goes on."""
    row = reread(job)
    return row.reason if row.state == "cancelling" else ""


def cost(job: Job) -> Decimal:
    return spent_of_job(job.tenant_id, job.pk)
