"""Runtimes that must keep one contract: the one in memory, the same behind HTTP, and the real gateway process."""

import dataclasses
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu_runtime.protocol.messages import DatasetBinding, SubmitJob
from gpu_runtime.protocol.schema import DatasetSummary
from gpu_runtime.protocol.specs import SftJobSpec
from jobs.runtime_client import HttpRuntimeClient, RuntimeClient, RuntimeUnreachable
from tests.support.factories import make_summary
from tests.support.jobs import make_spec
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.memory_transport import gateway_transport

TOKEN = "a token of the contract tests"
REPOSITORY = Path(__file__).resolve().parents[2]
START_LIMIT_S = 120.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A runtime, its address where it has one, and the folder that stands for a dataset."""

    client: RuntimeClient
    storage_key: str
    publish: Callable[[str, bytes], object]  # an mp4 file under a name
    url: str = ""

    def submit(self, job_id: str, attempt: int = 1, **fields: object) -> SubmitJob:
        spec = make_spec(dataset={"id": "version-1"}, **fields)
        return SubmitJob(
            job_id=job_id,
            attempt=attempt,
            tenant_id="11111111-1111-4111-8111-111111111111",
            spec=SftJobSpec.model_validate(spec),
            dataset=DatasetBinding(
                version_id="version-1",
                storage_key=self.storage_key,
                summary=DatasetSummary.model_validate(make_summary()),
            ),
        )


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`python -m gpu_runtime serve` on a unix socket."""
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "datasets" / "d1").mkdir(parents=True)
    socket = folder / "s"
    environment = {
        **os.environ,
        "JOYNEXUS_RUNTIME_TOKEN": TOKEN,
        "JOYNEXUS_BASE_MODELS": "tiny-qwen3-vl",
        "JOYNEXUS_RUNTIME_MAX_TOKENS_PER_FORWARD": "768",
        "OMP_NUM_THREADS": "1",
    }
    argv = [sys.executable, "-m", "gpu_runtime", "serve", "--state", str(folder / "state")]
    argv += ["--listen", f"unix:{socket}", "--datasets", str(folder / "datasets")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
    client = HttpRuntimeClient(f"unix://{socket}", TOKEN)

    def publish(artifact_id: str, content: bytes) -> None:
        (folder / "state" / "artifacts" / f"{artifact_id}.mp4").write_bytes(content)

    try:
        _wait_until_up(client, process, folder / "log")
        yield Served(client=client, storage_key="d1", publish=publish, url=f"unix://{socket}")
    finally:
        process.terminate()
        process.wait(20)


def _wait_until_up(client: RuntimeClient, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while True:
        try:
            client.status()
            return
        except RuntimeUnreachable:
            assert process.poll() is None, f"the gateway ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline_s, f"the gateway does not answer: {log.read_text()[-2000:]}"
            time.sleep(0.2)


# The gateway has no database: it need not be started again for the suite's pass on PostgreSQL.
RUNTIMES = ["memory", "memory_over_http"] + ([] if "DATABASE_URL" in os.environ else ["gateway"])


@pytest.fixture(params=RUNTIMES)
def served(request: pytest.FixtureRequest) -> Served:
    if request.param == "gateway":
        return request.getfixturevalue("gateway")
    runtime = InMemoryRuntime()
    if request.param == "memory":
        return Served(client=runtime, storage_key="d1", publish=runtime.artifacts.__setitem__)
    transport = gateway_transport(runtime, token=TOKEN)
    client = HttpRuntimeClient("http://runtime", TOKEN, transport=transport)
    return Served(client=client, storage_key="d1", publish=runtime.artifacts.__setitem__)


def fresh_job(request: pytest.FixtureRequest) -> str:
    """A job id of this test's own: the gateway is shared by the module."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, request.node.nodeid))
