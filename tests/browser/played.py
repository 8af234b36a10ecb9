"""A platform whose runtime is told by the test what its jobs did: policies, episodes, films."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_runtime.protocol.messages import WorkloadState
from joynexus_client import Client
from tests.support import console
from tests.support.memory_gateway import gateway_at_port
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.stack import Stack

Key = tuple[str, int]
TOKEN = "t" * 32
LIMIT_S = 60.0
SEED = """
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import DatasetFactory, DatasetVersionFactory
with platform_scope():
    dataset = DatasetFactory(tenant=Tenant.objects.get(name="Dora lab"))
    print(DatasetVersionFactory(dataset=dataset).pk)
"""


@dataclass(slots=True, kw_only=True)
class Played:
    """``version_id``: demonstrations of Dora's lab; ``adapter_id``: a policy trained on them."""

    stack: Stack
    runtime: InMemoryRuntime
    lab: dict[str, str]
    client: Client
    films: Path
    version_id: str = field(init=False, default="")
    adapter_id: str = field(init=False, default="")

    def start(self, spec: dict[str, Any]) -> Key:
        """Submit and wait until the runtime has it; it runs then."""
        job = self.client.jobs.submit(spec)
        key = (str(job["id"]), 1)
        wait_for(lambda: key in self.runtime.submitted)
        self.runtime.tell_state(*key, WorkloadState.RUNNING, total_steps=job["total_steps"])
        return key

    def sft_spec(self, name: str, *, steps: int) -> dict[str, Any]:
        """Training on Dora's demonstrations."""
        spec: dict[str, Any] = {
            "kind": "sft",
            "name": name,
            "base_model": "tiny-qwen3-vl",
            "training": {"steps": steps},
        }
        return spec | {"head": {"type": "mlp", "horizon": 4}, "dataset": {"id": self.version_id}}

    def publish(self, key: Key, published: console.Published) -> None:
        self.runtime.artifacts[published.told.artifact_id] = published.content
        self.runtime.tell(*key, published.told)

    def film(self, key: Key, *, seed: int, outcome: str) -> None:
        path = self.films / f"{seed}-{outcome}.mp4"
        content = console.make_film(path, hue=seed % 5 * 25)
        self.publish(key, console.video_of(key[0], content, seed=seed, outcome=outcome))

    def succeed(self, key: Key, steps: int) -> None:
        self.runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=steps, total_steps=steps)


@contextmanager
def played_platform(folder: Path) -> Iterator[Played]:
    """Dora's lab with a trained policy."""
    runtime = InMemoryRuntime()
    runtime.now_us = time.time_ns() // 1000
    with gateway_at_port(runtime, token=TOKEN) as url:
        stack = Stack(folder, {"JOYNEXUS_RUNTIME_URL": url, "JOYNEXUS_RUNTIME_TOKEN": TOKEN})
        stack.start()
        try:
            lab = stack.lab("Dora lab")
            platform = Played(stack=stack, runtime=runtime, lab=lab, client=stack.client(lab), films=folder)
            platform.adapter_id = _train(platform)
            yield platform
        finally:
            stack.stop()


def wait_for(condition: Any) -> Any:
    """The first true value of ``condition``."""
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {LIMIT_S:.0f} s")


def _train(platform: Played) -> str:
    platform.version_id = platform.stack.manage("shell", "-c", SEED).strip().splitlines()[-1]
    key = platform.start(platform.sft_spec("weak start", steps=200))
    platform.publish(key, console.adapter_of(key[0], version=200))
    platform.succeed(key, 200)
    return str(wait_for(lambda: platform.client.jobs.artifacts(key[0]))[0]["id"])
