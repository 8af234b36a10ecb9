"""Every process of the platform is killed with -9 while two tenants train: nothing is lost, nothing twice."""

import time
from dataclasses import dataclass

import pytest

from joynexus_client import Client
from tests.support.stack import Stack, assert_measured_is_metered, sft_spec, upload_demonstrations

STEPS, BATCH = 80, 4
KILL_AT_STEP = 15


@dataclass(frozen=True, kw_only=True)
class Tenant:
    client: Client
    version_id: str
    head: str


@pytest.fixture(scope="module")
def tenants(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tenant, Tenant]:
    folder = tmp_path_factory.mktemp("data")
    alice, bob = (stack.client(stack.lab(name)) for name in ("Lab A", "Lab B"))
    return (
        Tenant(client=alice, version_id=upload_demonstrations(alice, folder), head="mlp"),
        Tenant(client=bob, version_id=upload_demonstrations(bob, folder, cameras=2, action_dim=5), head="gr00t"),
    )


def submit(tenant: Tenant, name: str) -> str:
    spec = sft_spec(tenant.version_id, name=name, head=tenant.head, steps=STEPS, batch_size=BATCH)
    return str(tenant.client.jobs.submit(spec)["id"])


def wait_for_step(client: Client, job_id: str, step: int) -> None:
    deadline_s = time.monotonic() + 120
    while client.jobs.get(job_id)["step"] < step:
        assert time.monotonic() < deadline_s, client.jobs.get(job_id)
        time.sleep(0.1)


@pytest.mark.parametrize("victim", ["web", "worker", "sender", "beat", "relay", "valkey", "runtime"])
def test_jobs_finish_and_the_books_are_exact_after_kill_9_of(victim: str, stack: Stack, tenants: tuple[Tenant, ...]):
    jobs = [(tenant.client, submit(tenant, f"kill {victim}")) for tenant in tenants]
    wait_for_step(*jobs[0], KILL_AT_STEP)
    killed = stack.kill(victim)
    for client, job_id in jobs:
        job = client.jobs.wait(job_id, timeout_s=150)
        assert (job["state"], job["step"]) == ("succeeded", STEPS), job
        assert_every_step_once(client, job_id)
        assert_billed_once(client, job)
    assert stack.pid(victim) != killed
    assert_measured_is_metered(stack)


def assert_every_step_once(client: Client, job_id: str) -> None:
    (loss,) = client.jobs.metrics(job_id, series=("train/loss",), max_points=2000)["series"]
    assert loss["step"] == list(range(1, STEPS + 1))
    assert loss["total"] == STEPS


def assert_billed_once(client: Client, job: dict) -> None:
    usage = {row["meter"]: row for row in client.usage(job=job["id"])}
    assert usage["train.samples"]["quantity"] >= STEPS * BATCH  # redone work is metered as well
    paid = {line["meter"]: line for line in job["cost"]["lines"]}
    prices = {row["meter"]: row for row in client.prices()}
    per_sample = float(prices["train.samples"]["price"]["amount"]) / prices["train.samples"]["per"]
    assert float(paid["train.samples"]["amount"]) == pytest.approx(STEPS * BATCH * per_sample, rel=1e-12)


def test_everything_stops_within_five_seconds_and_goes_on_where_it_was(stack: Stack, tenants: tuple[Tenant, ...]):
    client, job_id = tenants[0].client, submit(tenants[0], "restart")
    wait_for_step(client, job_id, KILL_AT_STEP)
    assert stack.stop() <= 5.0
    stack.start()
    job = client.jobs.wait(job_id, timeout_s=150)
    assert job["state"] == "succeeded"
    assert_every_step_once(client, job_id)
    assert_billed_once(client, job)
    assert_measured_is_metered(stack)
