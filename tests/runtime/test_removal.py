"""Deleting what jobs left behind, through the gateway: artifacts, checkpoints of ended attempts, features."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import BytesFreed, DatasetBinding, ErrorBody
from gpu_runtime.protocol.wire import decode
from gpu_runtime.store.files import bytes_of
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import TOKEN, ended, events_of, make_config, running, submit_message
from tests.support.runtime_policies import Shelved, artifacts_of, policy_message


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
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def runtime(state: Path, datasets: Path, blind: Shelved) -> AsyncIterator[LocalRuntime]:
    blind.install(state)
    async with running(make_config(state, datasets)) as runtime:
        yield runtime


@pytest.fixture
async def http(runtime: LocalRuntime) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(runtime.gateway().app(), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://runtime", headers=headers) as client:
        yield client


async def freed(http: httpx.AsyncClient, path: str) -> int:
    response = await http.delete(path)
    assert response.status_code == 200, response.content
    return decode(BytesFreed, response.content).bytes


async def test_a_deleted_adapter_is_gone_with_its_folder_and_deleting_it_again_is_harmless(
    http: httpx.AsyncClient, state: Path, blind: Shelved
) -> None:
    name = blind.binding.artifact_id
    path = f"/v1/artifacts/{name}"
    size = bytes_of(state / "artifacts" / f"{name}.zip") + bytes_of(state / "artifacts" / name)
    assert size > 0
    assert await freed(http, path) == size
    assert not list((state / "artifacts").glob(f"*{name}*")), "neither archive nor folder, nor a rest of one"
    assert (await http.get(path)).status_code == 404
    assert await freed(http, path) == 0


async def test_what_a_kill_left_of_a_deletion_goes_with_the_next_try(
    http: httpx.AsyncClient, state: Path, blind: Shelved
) -> None:
    """The archive goes first, so that nothing is served whose folder is gone."""
    name = blind.binding.artifact_id
    (state / "artifacts" / f"{name}.zip").unlink()
    assert await freed(http, f"/v1/artifacts/{name}") > 0
    assert not (state / "artifacts" / name).exists()


async def test_a_policy_that_a_live_attempt_starts_from_stays_until_that_has_ended(
    http: httpx.AsyncClient, runtime: LocalRuntime, blind: Shelved
) -> None:
    submit = policy_message(blind.binding, episodes=5000, videos_per_outcome=0)
    await runtime.master.submit(submit)
    refused = await http.delete(f"/v1/artifacts/{blind.binding.artifact_id}")
    body = decode(ErrorBody, refused.content)
    assert (refused.status_code, body.code, body.field) == (409, "artifact_in_use", "artifact_id")
    assert "attempt 1 of job 'job'" in body.message
    assert runtime.artifacts.file(blind.binding.artifact_id)
    await runtime.master.cancel("job", 1)
    await ended(runtime, submit)
    assert await freed(http, f"/v1/artifacts/{blind.binding.artifact_id}") > 0


@pytest.mark.parametrize("name", ["..", ".hidden", "%2e%2e%2fjournal.sqlite3", "no-such-artifact"])
async def test_a_name_that_is_none_of_an_artifact_deletes_nothing(
    http: httpx.AsyncClient, state: Path, name: str
) -> None:
    before = {path for path in state.rglob("*") if "journal" not in path.name}
    response = await http.delete(f"/v1/artifacts/{name}")
    assert response.status_code in {200, 404, 405}
    assert {path for path in state.rglob("*") if "journal" not in path.name} >= before


async def test_checkpoints_go_once_their_attempt_has_ended_and_its_adapter_stays(
    http: httpx.AsyncClient, runtime: LocalRuntime, state: Path, binding: DatasetBinding
) -> None:
    submit, path = submit_message(binding, steps=6), "/v1/jobs/job/1/checkpoints"
    await runtime.master.submit(submit)
    live = await http.delete(path)
    assert (live.status_code, decode(ErrorBody, live.content).code) == (409, "attempt_live")
    await ended(runtime, submit)
    size = bytes_of(state / "checkpoints" / "job" / "1")
    assert size > 0
    assert await freed(http, path) == size
    assert not (state / "checkpoints" / "job").exists()
    assert await freed(http, path) == 0
    (adapter,) = artifacts_of(events_of(runtime, "job"), "adapter")
    assert (await http.get(f"/v1/artifacts/{adapter.artifact_id}")).status_code == 200


async def test_features_of_a_dataset_go_once_no_attempt_trains_on_it_and_nobody_elses(
    http: httpx.AsyncClient, runtime: LocalRuntime, state: Path, datasets: Path, binding: DatasetBinding
) -> None:
    other = bind(datasets, make_dataset(datasets / "two", episodes=3))
    done, kept = submit_message(other, job_id="kept", steps=2), submit_message(binding, steps=4)
    await runtime.master.submit(done)
    await ended(runtime, done)
    await runtime.master.submit(kept)
    path = f"/v1/datasets/{binding.version_id}/features"
    live = await http.delete(path)
    body = decode(ErrorBody, live.content)
    assert (live.status_code, body.code, body.field) == (409, "dataset_in_use", "version_id")
    assert "attempt 1 of job 'job'" in body.message
    await ended(runtime, kept)
    before = runtime.status().feature_store
    assert before is not None
    assert before.versions == (binding.version_id, other.version_id)
    size = await freed(http, path)
    after = runtime.status().feature_store
    assert after is not None
    assert after.versions == (other.version_id,), "nobody else's go"
    assert size == before.ram_bytes + before.file_bytes - after.ram_bytes - after.file_bytes > 0
    assert bytes_of(state / "features") == after.file_bytes > 0
    assert await freed(http, path) == 0


async def test_deleting_needs_the_token(http: httpx.AsyncClient, blind: Shelved) -> None:
    artifact = f"/v1/artifacts/{blind.binding.artifact_id}"
    for path in (artifact, "/v1/jobs/job/1/checkpoints", "/v1/datasets/version-one/features"):
        assert (await http.delete(path, headers={"authorization": "Bearer wrong"})).status_code == 401
