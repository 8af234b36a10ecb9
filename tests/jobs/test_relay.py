"""The relay as a process: it waits out trouble, tells live pages, and leaves when asked."""

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from channels.layers import get_channel_layer
from django.core.management import call_command
from django.db import OperationalError, connections

from gpu_runtime.protocol.messages import WorkloadState
from jobs import notify, relay
from jobs.models import RuntimeSnapshot
from jobs.relay import Relay
from jobs.selectors.runtime import RuntimeState, runtime_report
from tests.support.jobs import reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.django_db
def test_each_batch_wakes_the_readers_of_its_jobs_once_after_the_commit(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine, key), (other, other_key) = start_job(alice, runtime), start_job(charlie, runtime)
    runtime.train_step([key, other_key], 1)
    woken: list[dict[Any, int]] = []
    monkeypatch.setattr(notify, "wake", woken.append)
    Relay(runtime).poll(wait_s=0)
    assert woken == [
        {(alice.tenant.pk, mine.pk): reread(mine).last_seq, (charlie.tenant.pk, other.pk): reread(other).last_seq}
    ]


def test_groups_of_two_tenants_never_share_a_name_and_are_valid() -> None:
    tenant, job = uuid4(), uuid4()
    assert notify.job_group(tenant, job) != notify.job_group(uuid4(), job)
    assert get_channel_layer().require_valid_group_name(notify.job_group(tenant, job))


@pytest.mark.django_db
def test_a_snapshot_is_taken_at_once_and_then_every_few_seconds(alice: Person, runtime: InMemoryRuntime) -> None:
    now_s = 100.0
    watched = Relay(runtime, clock_s=lambda: now_s)
    watched.poll(wait_s=0)
    first = RuntimeSnapshot.objects.get().seen_at
    watched.poll(wait_s=0)
    assert RuntimeSnapshot.objects.get().seen_at == first
    now_s += relay.SNAPSHOT_EVERY_S
    watched.poll(wait_s=0)
    assert RuntimeSnapshot.objects.get().seen_at > first


@pytest.mark.django_db
def test_an_old_snapshot_is_called_unreachable(runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    Relay(runtime).poll(wait_s=0)
    assert runtime_report().state == RuntimeState.READY
    runtime.accepting, runtime.reason = False, "disk_full"
    Relay(runtime).poll(wait_s=0)
    assert (runtime_report().state, runtime_report().reason) == (RuntimeState.NOT_ACCEPTING, "disk_full")
    monkeypatch.setattr("jobs.selectors.runtime.STALE_AFTER", timedelta(0))
    assert runtime_report().state == RuntimeState.UNREACHABLE


@pytest.mark.django_db(transaction=True)
def test_trouble_of_the_runtime_and_the_database_is_waited_out(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "BACKOFF_MIN_S", 0.01)
    monkeypatch.setattr(relay, "WAIT_S", 0.0)
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    runtime.down = True
    troubles = 3
    apply = relay.batch_apply

    def fail_at_first(*args: Any, **kwargs: Any) -> Any:
        nonlocal troubles
        if troubles:
            troubles -= 1
            raise OperationalError("database is locked")
        return apply(*args, **kwargs)

    monkeypatch.setattr(relay, "batch_apply", fail_at_first)
    running = Relay(runtime)

    def work() -> None:
        try:
            running.run()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    runtime.down = False
    deadline_s = time.monotonic() + 10
    while reread(job).state != "succeeded":
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    running.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert troubles == 0


def test_sigterm_ends_the_command_with_status_0(tmp_path: Path) -> None:
    environment = {**os.environ, "JOYNEXUS_STATE": str(tmp_path), "DJANGO_SETTINGS_MODULE": "control_plane.settings"}
    environment.pop("DATABASE_URL", None)
    process = subprocess.Popen(
        [sys.executable, "manage.py", "relay"],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert "started" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    assert output.rstrip().endswith("relay: stopped")


@pytest.mark.django_db
def test_the_admin_shows_jobs_of_every_tenant_to_operators_only(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, admin_client: Any
) -> None:
    job, _ = start_job(alice, runtime, name="alices run")
    start_job(charlie, runtime, name="charlies run")
    Relay(runtime).poll(wait_s=0)
    page = admin_client.get("/admin/jobs/job/").content.decode()
    assert "alices run" in page
    assert "charlies run" in page
    for address in (f"job/{job.pk}/change", "jobevent", "outboxmessage", "devicespan", "runtimecursor"):
        assert admin_client.get(f"/admin/jobs/{address}/").status_code == 200, address
    assert charlie.browser().get("/admin/jobs/job/").status_code == 302


@pytest.mark.django_db
def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", "jobs", check=True, dry_run=True, verbosity=0)
