"""Drained services: what has not begun waits, what runs goes on, and a restart changes neither."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import DatasetBinding, DrainService, ErrorBody, RuntimeStatus, WorkloadState
from gpu_runtime.protocol.services import Service
from gpu_runtime.protocol.wire import decode, encode
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import TOKEN, RuntimeProcess, ended, make_config, running, submit_message
from tests.support.runtime_policies import Shelved, policy_message


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    """Acts on its state alone."""
    return Shelved.make(tmp_path_factory.mktemp("blind"), cameras=False)


@pytest.fixture
async def runtime(tmp_path: Path, datasets: Path, blind: Shelved) -> AsyncIterator[LocalRuntime]:
    blind.install(tmp_path / "state")
    async with running(make_config(tmp_path / "state", datasets)) as runtime:
        yield runtime


@pytest.fixture
async def http(runtime: LocalRuntime) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(runtime.gateway().app(), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://runtime", headers=headers) as client:
        yield client


def states(status: RuntimeStatus) -> dict[str, tuple[str, str | None]]:
    return {service.service: (service.state, service.reason) for service in status.services}


async def test_a_drained_service_is_shown_with_the_reason_until_it_is_given_out_again(
    http: httpx.AsyncClient,
) -> None:
    drained = await http.post("/v1/services/inference/drain", content=encode(DrainService(reason="new driver")))
    assert drained.status_code == 200
    assert states(decode(RuntimeStatus, drained.content))["inference"] == ("draining", "new driver")
    again = await http.post("/v1/services/inference/drain", content=encode(DrainService(reason="still")))
    shown = states(decode(RuntimeStatus, again.content))
    assert shown == {"training": ("idle", None), "inference": ("draining", "still"), "environment": ("idle", None)}
    for _ in range(2):
        undrained = await http.post("/v1/services/inference/undrain")
        assert states(decode(RuntimeStatus, undrained.content))["inference"] == ("idle", None)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/services/gpu/drain", encode(DrainService(reason="x")), 404, "unknown_service"),
        ("/v1/services/gpu/undrain", b"", 404, "unknown_service"),
        ("/v1/services/training/drain", b"", 422, "malformed"),
    ],
)
async def test_what_cannot_be_drained_is_refused_by_name(
    http: httpx.AsyncClient, path: str, body: bytes, status: int, code: str
) -> None:
    response = await http.post(path, content=body)
    assert (response.status_code, decode(ErrorBody, response.content).code) == (status, code)


async def test_what_runs_goes_on_what_needs_the_service_waits_and_the_rest_begins(
    runtime: LocalRuntime, binding: DatasetBinding, blind: Shelved
) -> None:
    runs = submit_message(binding, job_id="runs", steps=100_000)
    waits = submit_message(binding, job_id="waits", steps=2)
    plays = policy_message(blind.binding, job_id="plays", episodes=2, videos_per_outcome=0)
    await runtime.master.submit(runs)
    await reaches(runtime, "runs", 2)
    await runtime.drains.drain(Service.TRAINING, "new driver")
    await runtime.master.submit(waits)
    await runtime.master.submit(plays)
    assert (await ended(runtime, plays)).state is WorkloadState.SUCCEEDED
    await reaches(runtime, "runs", (await runtime.master.status("runs", 1)).step + 3)
    assert (await runtime.master.status("waits", 1)).state is WorkloadState.ACCEPTED
    await runtime.drains.undrain(Service.TRAINING)
    assert (await ended(runtime, waits)).state is WorkloadState.SUCCEEDED
    await runtime.master.cancel("runs", 1)
    await ended(runtime, runs)


async def test_what_waits_for_a_drained_service_can_be_cancelled(
    runtime: LocalRuntime, binding: DatasetBinding
) -> None:
    await runtime.drains.drain(Service.TRAINING, "new driver")
    submit = submit_message(binding)
    await runtime.master.submit(submit)
    await runtime.master.cancel("job", 1)
    assert (await ended(runtime, submit)).state is WorkloadState.CANCELLED


async def reaches(runtime: LocalRuntime, job_id: str, step: int) -> None:
    async with asyncio.timeout(60):
        while (await runtime.master.status(job_id, 1)).step < step:
            await asyncio.sleep(0.01)


def test_a_restart_finds_the_service_drained_goes_on_with_what_ran_and_lets_the_rest_wait(
    tmp_path: Path, datasets: Path, binding: DatasetBinding
) -> None:
    process = RuntimeProcess(tmp_path / "state", datasets)
    try:
        process.start()
        process.submit(submit_message(binding, job_id="runs", steps=60))
        process.until(lambda: process.job("runs").step >= 2 or None)
        drain = process.http.post("/v1/services/training/drain", content=encode(DrainService(reason="new driver")))
        assert drain.status_code == 200
        process.submit(submit_message(binding, job_id="waits", steps=2))
        process.kill()
        process.start()
        assert states(process.status())["training"] == ("draining", "new driver")
        assert process.until_ended("runs").state is WorkloadState.SUCCEEDED
        assert process.job("waits").state is WorkloadState.ACCEPTED
        process.http.post("/v1/services/training/undrain")
        assert process.until_ended("waits").state is WorkloadState.SUCCEEDED
    finally:
        process.close()
