"""A budget and the real runtime process: the job stops, keeps its policy, and has not cost a step more than it may."""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from gpu_runtime.protocol.messages import DatasetBinding
from jobs import runtime_client
from jobs.models import Job
from jobs.relay import Relay
from jobs.runtime_client import HttpRuntimeClient, RuntimeUnreachable
from jobs.services.dispatch import Dispatch, job_dispatch
from jobs.services.submit import job_submit
from jobs.services.sweep import reconcile
from jobs.states import TERMINAL
from tests.support.caps import cost, set_cap_prices
from tests.support.demonstrations import bind, make_dataset
from tests.support.downloads import content_of
from tests.support.jobs import make_spec, make_version, reread
from tests.support.runtime import TOKEN, RuntimeProcess
from tests.support.story import Person

pytestmark = pytest.mark.django_db
MAX_COST, BATCH = 5, 4
SLOW = """
import sys, time
from gpu_runtime.training.step import DeviceStep
original = DeviceStep._encode
def slow(self, members):
    time.sleep(0.3)  # a step of a base of useful size
    return original(self, members)
DeviceStep._encode = slow
from gpu_runtime.__main__ import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


@pytest.fixture
def process(tmp_path: Path, datasets: Path) -> Iterator[RuntimeProcess]:
    process = RuntimeProcess(tmp_path / "state", datasets)
    process.start(("-c", SLOW))
    yield process
    process.close()


@pytest.fixture
def client(process: RuntimeProcess, monkeypatch: pytest.MonkeyPatch) -> HttpRuntimeClient:
    client = HttpRuntimeClient(f"unix://{process.socket}", TOKEN)
    monkeypatch.setattr(runtime_client, "connect", lambda: client)
    return client


def submitted(person: Person, binding: DatasetBinding) -> Job:
    """A job that would take an hour and may cost five steps."""
    summary = binding.summary.model_dump(mode="json", by_alias=True)
    version = make_version(person, storage_key=binding.storage_key, summary=summary)
    spec = make_spec(
        version,
        head={"horizon": 2, "width": 32, "blocks": 1, "pca_dims": 8, "pca_frames": 16},
        dataset={"image_size": 32},
        training={"steps": 10_000, "batch_size": BATCH, "evaluate_every": 10_000, "checkpoint_every": 10_000},
        budget={"max_cost": str(MAX_COST)},
    )
    return job_submit(tenant=person.tenant, actor=person.actor, spec=spec)


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed between the wish and the end"])
def test_a_job_ends_at_its_budget_with_its_policy_and_at_most_one_step_more(
    alice: Person, binding: DatasetBinding, process: RuntimeProcess, client: HttpRuntimeClient, killed: bool
) -> None:
    set_cap_prices(samples=BATCH)
    job = submitted(alice, binding)
    assert job_dispatch(job.pk, runtime=client) == Dispatch.ACCEPTED
    relay = Relay(client)
    while reread(job).state not in TERMINAL:
        try:
            relay.poll(wait_s=1)
        except RuntimeUnreachable:
            process.start(("-c", SLOW))
        if killed and reread(job).state == "cancelling":
            killed = False
            process.kill()
    ended = reread(job)
    assert (ended.state, ended.reason, ended.message) == ("cancelled", "budget_reached", "The job may cost 5.")
    assert MAX_COST - 1 <= cost(job) <= MAX_COST + 1, "a step is a metering interval, and costs 1"
    (artifact,) = alice.api.get(f"/api/v1/jobs/{job.pk}/artifacts").json()["results"]
    assert (artifact["kind"], artifact["policy_version"]) == ("adapter", cost(job)), "all that was paid is kept"
    with zipfile.ZipFile(BytesIO(content_of(alice.api.get(artifact["download"])))) as files:
        assert "adapter.safetensors" in files.namelist()
    reconcile(runtime=client)
    assert reread(job).attempt == 1, "it does not start again by itself"
