"""kill -9 of the relay in the middle of its work: every entry still takes effect exactly once."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from gpu_runtime.protocol.messages import EventBatch, LogWritten, WorkloadState
from jobs.models import Job, RuntimeCursor
from jobs.selectors.money import reconcile_billing
from tenants.billing.usage.selectors import usage_totals
from tests.support.jobs import events_of, points_of, reread, start_job
from tests.support.memory_gateway import gateway_at_port
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

REPOSITORY = Path(__file__).resolve().parents[2]
STEPS, KILLS, TOKEN = 150, 3, "token-of-the-kill-test"

# The command as operators run it, on the database of this test.
RELAY = """
import sys, django
django.setup()
from django.core.management import call_command
from django.db import connections
connections["default"].settings_dict["NAME"] = sys.argv[1]
call_command("relay")
"""


class SmallBatches(InMemoryRuntime):
    """Hands the journal out in pieces, so that kills find the relay between and within many batches."""

    def events(self, *, after: int, limit: int, wait_s: float) -> EventBatch:
        batch = super().events(after=after, limit=9, wait_s=wait_s)
        if not batch.events:
            time.sleep(0.05)
        return batch


def start_relay(url: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.support.settings",
        "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}",
        "JOYNEXUS_RUNTIME_URL": url,
        "JOYNEXUS_RUNTIME_TOKEN": TOKEN,
    }
    name = str(connection.settings_dict["NAME"])
    return subprocess.Popen([sys.executable, "-c", RELAY, name], cwd=REPOSITORY, env=environment)


def applied() -> int:
    return RuntimeCursor.objects.values_list("last_seq", flat=True).first() or 0


def wait_until(reached: Any, relay: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + 60
    while not reached():
        assert relay.poll() is None, "the relay ended by itself"
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def write_journal(runtime: InMemoryRuntime, key: tuple[str, int]) -> None:
    runtime.tell_state(*key, WorkloadState.RUNNING)
    for step in range(1, STEPS + 1):
        runtime.train_step([key], step, busy_us=101)
        runtime.tell(*key, LogWritten(level="info", message=str(step)))
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=STEPS)


@pytest.mark.django_db(transaction=True)
def test_killing_the_relay_again_and_again_loses_nothing_and_doubles_nothing(alice: Person) -> None:
    runtime, chance = SmallBatches(), random.Random(7)
    job, key = start_job(alice, runtime)
    write_journal(runtime, key)
    with gateway_at_port(runtime, token=TOKEN) as url:
        for kill in range(1, KILLS + 1):
            relay = start_relay(url)
            wait_until(lambda kill=kill: applied() >= kill * len(runtime.journal) // (KILLS + 2), relay)
            time.sleep(chance.uniform(0, 0.03))
            relay.kill()
            relay.wait()
        assert 0 < applied() < len(runtime.journal), "the kills came in the middle"
        relay = start_relay(url)
        wait_until(lambda: applied() == len(runtime.journal), relay)
        relay.terminate()
        assert relay.wait(20) == 0
    assert_each_entry_took_effect_once(alice, job)


def assert_each_entry_took_effect_once(alice: Person, job: Job) -> None:
    assert reread(job).state == "succeeded"
    steps = list(range(1, STEPS + 1))
    assert [int(event.data["message"]) for event in events_of(job, type="log")] == steps
    assert [point.step for point in points_of(job, series="loss")] == steps
    quantities = {total.line.meter: total.line.quantity for total in usage_totals(alice.tenant, job_id=job.pk)}
    assert quantities == {"train.samples": 16 * STEPS, "train.compute_us": 101 * STEPS}
    assert reconcile_billing().ok
