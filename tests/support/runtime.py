"""A real GPU runtime for tests: in this process, or as ``python -m gpu_runtime serve`` that can be killed."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from gpu_runtime.environments.registry import FAMILIES
from gpu_runtime.placement.local import load_bases
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import (
    TERMINAL_WORKLOAD_STATES,
    DatasetBinding,
    Event,
    EventBatch,
    RuntimeStatus,
    SubmitJob,
    WorkloadStatus,
)
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.protocol.wire import decode, encode
from gpu_runtime.services.config import RuntimeConfig

TOKEN = "a-token-for-tests-only"
REPOSITORY = Path(__file__).parents[2]
SETTINGS = {
    "JOYNEXUS_RUNTIME_TOKEN": TOKEN,
    "JOYNEXUS_BASE_MODELS": "tiny-qwen3-vl",
    "JOYNEXUS_RUNTIME_MIN_FREE_BYTES": "0",
    "JOYNEXUS_RUNTIME_MAX_TOKENS_PER_FORWARD": "768",  # nothing is measured at a start
}

MLP = {"type": "mlp", "horizon": 2, "width": 32, "blocks": 1, "pca_dims": 8, "pca_frames": 16}
OFT = {"type": "oft", "horizon": 3, "blocks": 1, "expansion": 1, "fit_frames": 16}
GR00T = {
    "type": "gr00t", "horizon": 2, "width": 32, "layers": 1, "heads": 2, "output_width": 32, "future_tokens": 2,
    "noise_draws": 2, "denoise_steps": 2, "fit_frames": 16,
}  # fmt: skip


def submit_message(
    binding: DatasetBinding,
    *,
    job_id: str = "job",
    tenant_id: str = "a",
    head: dict[str, Any] = MLP,
    steps: int = 8,
    **training: Any,
) -> SubmitJob:
    """A small job on a small dataset."""
    options = {"steps": steps, "batch_size": 4, "evaluate_every": 4, "checkpoint_every": 3, "seed": 1} | training
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": f"job of {tenant_id}",
            "base_model": "tiny-qwen3-vl",
            "head": head,
            "dataset": {"id": binding.version_id, "image_size": 32},
            "training": options,
            "optimizer": {"lr": 1e-3, "warmup_steps": 2},
        }
    )
    return SubmitJob(job_id=job_id, attempt=1, tenant_id=tenant_id, spec=spec, dataset=binding)


def make_config(state: Path, datasets: Path, **changes: Any) -> RuntimeConfig:
    """Settings of an in-process runtime."""
    config = RuntimeConfig.read(
        state=str(state), listen=f"unix:{state}/s", datasets=str(datasets), environment=SETTINGS
    )
    return replace(config, **changes)


_bases: dict[str, Any] = {}


def shared_bases(config: RuntimeConfig) -> dict[str, Any]:
    """The tiny base, built once per test process: it is frozen."""
    if not _bases:
        _bases.update(load_bases(config))
    return _bases


@asynccontextmanager
async def running(
    config: RuntimeConfig, bases: dict[str, Any] | None = None, families: Mapping[str, str] = FAMILIES
) -> AsyncIterator[LocalRuntime]:
    """A runtime at work in this event loop, stopped in good order at the end."""
    config.state.mkdir(parents=True, exist_ok=True)
    runtime = LocalRuntime(config, bases or shared_bases(config), families=families)
    work = asyncio.create_task(runtime.work())
    try:
        yield runtime
    finally:
        await asyncio.wait_for(runtime.stop(work), 30)
        runtime.close()
    work.result()


async def ended(runtime: LocalRuntime, submit: SubmitJob, timeout_s: float = 60) -> WorkloadStatus:
    """Wait for the terminal state of an attempt."""
    async with asyncio.timeout(timeout_s):
        while True:
            status = await runtime.master.status(submit.job_id, submit.attempt)
            if status.state in TERMINAL_WORKLOAD_STATES:
                return status
            await asyncio.sleep(0.02)


def events_of(runtime: LocalRuntime, job_id: str | None = None) -> list[Event]:
    """Every event so far, of one job or of all."""
    events = runtime.journal.read(after=0, limit=1_000_000)
    return [event for event in events if job_id is None or event.job_id == job_id]


def metric(events: list[Event], name: str) -> list[tuple[int, float]]:
    """(step, value) in journal order, repetitions included."""
    found = [event.body for event in events if event.body.type == "metrics"]
    return [(body.step, body.values[name]) for body in found if name in body.values]


class RuntimeProcess:
    """``python -m gpu_runtime serve`` on a unix socket."""

    def __init__(self, state: Path, datasets: Path, **settings: str) -> None:
        self.state, self.datasets = state, datasets
        self.settings = SETTINGS | {f"JOYNEXUS_RUNTIME_{name.upper()}": value for name, value in settings.items()}
        state.mkdir(parents=True, exist_ok=True)
        self.socket = state / "s"
        self.process: subprocess.Popen[bytes] | None = None
        transport = httpx.HTTPTransport(uds=str(self.socket))
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.http = httpx.Client(transport=transport, base_url="http://runtime", headers=headers, timeout=40)

    def start(self, entry: tuple[str, ...] = ("-m", "gpu_runtime")) -> None:
        """Start and wait until it answers."""
        with (self.state / "log").open("ab") as log:
            self.process = subprocess.Popen(**self.command(entry), stdout=log, stderr=log)
        self.until(lambda: self.answers() or None, 60)

    def command(self, entry: tuple[str, ...] = ("-m", "gpu_runtime")) -> dict[str, Any]:
        """Arguments for subprocess."""
        arguments = ["--state", str(self.state), "--listen", f"unix:{self.socket}", "--datasets", str(self.datasets)]
        environment = os.environ | self.settings | {"OMP_NUM_THREADS": "1"}
        command = [sys.executable, *entry, "serve", *arguments]
        return {"args": command, "cwd": REPOSITORY, "env": environment}

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.state / "log").read_text()
        try:
            return self.http.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> float:
        """SIGTERM; returns the seconds it took, and asserts a clean end."""
        assert self.process is not None
        started = time.monotonic()
        self.process.terminate()
        assert self.process.wait(timeout=20) == 0, (self.state / "log").read_text()
        return time.monotonic() - started

    def close(self) -> None:
        self.http.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def submit(self, message: SubmitJob) -> httpx.Response:
        return self.http.post("/v1/jobs", content=encode(message))

    def job(self, job_id: str, attempt: int = 1) -> WorkloadStatus:
        return decode(WorkloadStatus, self.http.get(f"/v1/jobs/{job_id}/{attempt}").content)

    def status(self) -> RuntimeStatus:
        return decode(RuntimeStatus, self.http.get("/v1/status").content)

    def events(self) -> list[Event]:
        """Every event so far."""
        events: list[Event] = []
        while True:
            after = events[-1].seq if events else 0
            batch = decode(EventBatch, self.http.get("/v1/events", params={"after": after, "limit": 1000}).content)
            if not batch.events:
                return events
            events += batch.events

    def until(self, condition: Callable[[], Any], timeout_s: float = 60) -> Any:
        """Poll until ``condition`` returns something; fails with the log's end."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (value := condition()) is not None:
                return value
            time.sleep(0.02)
        raise AssertionError(f"nothing within {timeout_s} s; log: {(self.state / 'log').read_text()[-3000:]}")

    def until_ended(self, job_id: str, timeout_s: float = 90) -> WorkloadStatus:
        def ended() -> WorkloadStatus | None:
            status = self.job(job_id)
            return status if status.state in TERMINAL_WORKLOAD_STATES else None

        return self.until(ended, timeout_s)
