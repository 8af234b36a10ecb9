"""Jobs that start from a policy: what admission compares, kind by kind, and in which words it refuses."""

from typing import Any
from uuid import uuid4

import pytest
from django.db.models import ProtectedError
from django.utils import timezone

from jobs.models import ArtifactKind, Job, RuntimeSnapshot
from jobs.services.submit import job_submit
from tenants.errors import ApplicationError
from tenants.scope import platform_scope
from tests.support.jobs import make_job, relay_all
from tests.support.memory_runtime import BASE, InMemoryRuntime
from tests.support.policy_jobs import FLOW, make_adapter, make_policy_job, make_policy_spec
from tests.support.story import Person

pytestmark = pytest.mark.django_db

KINDS = ("rl", "evaluation", "rollout")


def refusals(person: Person, spec: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Pointer -> (code, sentence) of a refused submit, which must leave no job behind."""
    with platform_scope():
        before = Job.objects.count()
    with pytest.raises(ApplicationError) as refused:
        job_submit(tenant=person.tenant, actor=person.actor, spec=spec)
    assert refused.value.status == 422
    with platform_scope():
        assert Job.objects.count() == before
    return {error.pointer: (error.code, error.detail) for error in refused.value.errors}


@pytest.mark.parametrize(("kind", "total"), [("rl", 20), ("evaluation", 20), ("rollout", 5)])
def test_a_job_of_each_kind_is_admitted_with_base_and_head_of_its_policy(alice: Person, kind: str, total: int) -> None:
    adapter = make_adapter(alice)
    job = make_policy_job(alice, kind, adapter)
    assert (job.kind, job.state, job.total_steps) == (kind, "queued", total)
    assert (job.policy, job.dataset_version) == (adapter, None)
    assert (job.base_model, job.head) == ("tiny-qwen3-vl", "mlp")


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_policy_a_missing_one_and_nonsense_are_the_same_answer(
    alice: Person, charlie: Person, kind: str
) -> None:
    answers = []
    for name in (str(make_adapter(charlie).pk), str(uuid4()), "not an id"):
        code, detail = refusals(alice, make_policy_spec(kind, name))["/policy/artifact"]
        answers.append((code, detail.replace(name, "ID")))
    assert set(answers) == {("unknown_artifact", "There is no artifact 'ID'. Allowed: ids of your own adapters.")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", [kind for kind in ArtifactKind.values if kind != "adapter"])
def test_only_an_adapter_is_a_policy(alice: Person, kind: str, other: str) -> None:
    found = refusals(alice, make_policy_spec(kind, make_adapter(alice, kind=other)))
    code, detail = found["/policy/artifact"]
    assert code == "artifact_not_adapter"
    assert other in detail
    assert "adapter" in detail


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_of_a_base_that_is_not_resident_is_refused_with_those_that_are(alice: Person, kind: str) -> None:
    adapter = make_adapter(alice, base_model={"name": "huge", "revision": "r"})
    code, detail = refusals(alice, make_policy_spec(kind, adapter))["/policy/artifact"]
    assert code == "unknown_base_model"
    assert "'huge'" in detail
    assert "tiny-qwen3-vl, small-qwen3-vl" in detail


def test_a_policy_of_another_revision_of_the_base_is_refused(alice: Person, runtime: InMemoryRuntime) -> None:
    relay_all(runtime)
    adapter = make_adapter(alice, base_model={"name": BASE.name, "revision": "older"})
    code, detail = refusals(alice, make_policy_spec("evaluation", adapter))["/policy/artifact"]
    assert code == "base_model_changed"
    assert "'older'" in detail
    assert f"{BASE.revision!r}" in detail


def test_a_manifest_that_lacks_something_is_refused_by_name(alice: Person) -> None:
    code, detail = refusals(alice, make_policy_spec("rl", make_adapter(alice, action={"dim": 3})))["/policy/artifact"]
    assert code == "manifest_invalid"
    assert "action.horizon" in detail


@pytest.mark.parametrize(
    ("head", "exploration", "allowed"),
    [
        ("mlp", FLOW, "gaussian"),
        ("oft", {"type": "flow_noise"}, "gaussian"),
        ("gr00t", {"type": "gaussian"}, "flow_sde, flow_noise"),
        ("dream", {"type": "gaussian"}, "none"),
    ],
)
def test_exploration_must_fit_the_head(alice: Person, head: str, exploration: dict[str, Any], allowed: str) -> None:
    spec = make_policy_spec("rl", make_adapter(alice, head=head), exploration=exploration)
    code, detail = refusals(alice, spec)["/exploration/type"]
    assert code == "exploration_mismatch"
    assert head in detail
    assert exploration["type"] in detail
    assert f"Allowed: {allowed}" in detail


@pytest.mark.parametrize(("head", "exploration"), [("gr00t", FLOW), ("gr00t", {"type": "flow_noise"}), ("oft", None)])
def test_exploration_that_fits_the_head_is_admitted(alice: Person, head: str, exploration: Any) -> None:
    fitting = exploration or {"type": "gaussian"}
    assert make_policy_job(alice, "rl", make_adapter(alice, head=head), exploration=fitting).head == head


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_steps_are_executed_than_a_chunk_has(alice: Person, kind: str) -> None:
    adapter = make_adapter(alice, horizon=4)
    code, detail = refusals(alice, make_policy_spec(kind, adapter, executed_steps=5))["/executed_steps"]
    assert code == "horizon_too_short"
    assert "5" in detail
    assert "Allowed: 1 to 4" in detail
    assert make_policy_job(alice, kind, adapter, executed_steps=4).spec["executed_steps"] == 4


def test_dimensions_that_are_held_fixed_must_exist_and_leave_one(alice: Person) -> None:
    adapter = make_adapter(alice)
    found = refusals(alice, make_policy_spec("rl", adapter, unexplored=["gripper", "elbow", "gripper"]))
    assert found["/unexplored/1"][0] == "unknown_dimension"
    assert "dx, dy, gripper" in found["/unexplored/1"][1]
    assert found["/unexplored/2"][0] == "repeated"
    every = refusals(alice, make_policy_spec("rl", adapter, unexplored=["gripper", "dx", "dy"]))
    assert every["/unexplored"][0] == "nothing_explored"
    assert make_policy_job(alice, "rl", adapter, unexplored=["gripper"]).spec["unexplored"] == ["gripper"]


def test_a_policy_that_sees_what_no_simulation_draws_is_refused(alice: Person) -> None:
    adapter = make_adapter(alice, cameras=("wrist_cam",))
    code, detail = refusals(alice, make_policy_spec("rollout", adapter))["/environment/cameras"]
    assert code == "camera_not_simulated"
    assert "wrist_cam" in detail
    assert "observation.images.NAME" in detail


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_job_may_say_which_camera_of_the_task_shows_what_the_policy_sees(
    alice: Person, kind: str
) -> None:
    cameras = {"wrist_image": "hand", "observation.images.image": "base"}
    adapter = make_adapter(alice, cameras=("observation.images.image", "wrist_image"))
    task = {"id": "PushCube-v1", "cameras": cameras}
    where: dict[str, Any] = {"environments": [task]} if kind == "evaluation" else {"environment": task}
    spec = make_policy_job(alice, kind, adapter, **where).spec
    kept = spec["environments"][0] if kind == "evaluation" else spec["environment"]
    assert kept["cameras"] == cameras


@pytest.mark.parametrize(
    ("cameras", "code", "words"),
    [
        ({"observation.images.front": "a"}, "unknown_camera", ("'observation.images.front'", "observation.images.b")),
        ({"observation.images.b": "a"}, "camera_repeated", ("'a'", "observation.images.a", "observation.images.b")),
    ],
)
def test_a_camera_that_the_policy_does_not_see_and_one_for_two_views_are_refused_at_their_task(
    alice: Person, cameras: dict[str, str], code: str, words: tuple[str, ...]
) -> None:
    adapter = make_adapter(alice, cameras=("observation.images.a", "observation.images.b"))
    tasks = [{"id": "PushCube-v1"}, {"id": "PickCube-v1", "cameras": cameras}]
    found = refusals(alice, make_policy_spec("evaluation", adapter, environments=tasks))
    assert list(found) == ["/environments/1/cameras"]
    assert found["/environments/1/cameras"][0] == code
    assert all(word in found["/environments/1/cameras"][1] for word in (*words, "allowed: "))


def test_a_policy_without_cameras_may_be_played(alice: Person) -> None:
    spec = {"kind": "sft", "dataset": {"id": "d", "cameras": []}}
    assert make_policy_job(alice, "evaluation", make_adapter(alice, cameras=("wrist_cam",), spec=spec)).policy


@pytest.mark.parametrize(
    ("kind", "change", "pointer"),
    [
        ("rl", {"collection": {"seats": 9}}, "/collection/seats"),
        ("rollout", {"parallel": 9}, "/parallel"),
    ],
)
def test_more_seats_than_a_tenant_may_hold_are_refused_once_the_limit_is_known(
    alice: Person, runtime: InMemoryRuntime, kind: str, change: dict[str, Any], pointer: str
) -> None:
    adapter = make_adapter(alice)
    assert make_policy_job(alice, kind, adapter, **change).state == "queued"  # nothing was reported yet
    runtime.env_seats_per_tenant = 8
    RuntimeSnapshot.objects.create(
        journal_id=runtime.journal_id, status=runtime.status().model_dump(mode="json"), seen_at=timezone.now()
    )
    code, detail = refusals(alice, make_policy_spec(kind, adapter, **change))[pointer]
    assert code == "too_many_seats"
    assert "9" in detail
    assert "Allowed: 1 to 8" in detail


@pytest.mark.parametrize(
    ("kind", "change", "pointer"),
    [
        ("rl", {"environment": {"id": "atari/Pong"}}, "/environment/id"),
        ("rollout", {"environment": {"id": "atari/Pong"}}, "/environment/id"),
        ("evaluation", {"environments": [{"id": "PushCube-v1"}, {"id": "atari/Pong"}]}, "/environments/1/id"),
    ],
)
def test_a_task_of_no_simulator_is_refused_once_the_simulators_are_known(
    alice: Person, runtime: InMemoryRuntime, kind: str, change: dict[str, Any], pointer: str
) -> None:
    adapter = make_adapter(alice)
    assert make_policy_job(alice, kind, adapter, **change).state == "queued"  # nothing was reported yet
    runtime.env_namespaces = ("", "gym_pusht")
    relay_all(runtime)
    found = refusals(alice, make_policy_spec(kind, adapter, **change))
    assert list(found) == [pointer]
    assert found[pointer][0] == "unknown_environment"
    assert "'atari/Pong'" in found[pointer][1]
    assert "Allowed: a ManiSkill id, gym_pusht/NAME" in found[pointer][1]
    assert make_policy_job(alice, kind, adapter).state == "queued"


def test_an_evaluation_may_ask_for_more_seats_than_there_are_and_takes_them_as_they_come(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    runtime.env_seats_per_tenant = 1
    relay_all(runtime)
    assert make_policy_job(alice, "evaluation", parallel=9).state == "queued"


def test_every_disagreement_is_told_at_once(alice: Person, runtime: InMemoryRuntime) -> None:
    runtime.env_seats_per_tenant = 2
    relay_all(runtime)
    adapter = make_adapter(alice, head="gr00t", cameras=("wrist_cam",), base_model={"name": "huge", "revision": "r"})
    spec = make_policy_spec("rl", adapter, executed_steps=8, unexplored=["elbow"], collection={"seats": 3})
    assert set(refusals(alice, spec)) == {
        *("/policy/artifact", "/executed_steps", "/exploration/type", "/unexplored/0", "/collection/seats"),
        "/environment/cameras",
    }


def test_a_policy_that_jobs_start_from_keeps_its_row(alice: Person) -> None:
    job = make_policy_job(alice, "evaluation")
    with platform_scope(), pytest.raises(ProtectedError):
        job.policy.delete()


def test_demonstrations_are_admitted_as_before(alice: Person) -> None:
    job = make_job(alice)
    assert (job.base_model, job.head, job.policy) == ("tiny-qwen3-vl", "mlp", None)
    assert job.dataset_version is not None


@pytest.mark.parametrize(
    ("tasks", "changes", "pointer", "allowed"),
    [
        (200, {"episodes": 10_000}, "/episodes", "at most 100 for each of 200 tasks"),
        (100, {"videos_per_outcome": 20}, "/videos_per_outcome", "at most 10 for each of 100 tasks"),
    ],
)
def test_many_tasks_with_many_episodes_or_films_are_refused_in_all(
    alice: Person, tasks: int, changes: dict[str, int], pointer: str, allowed: str
) -> None:
    environments = [{"id": f"libero_90/{number}"} for number in range(tasks)]
    spec = make_policy_spec("evaluation", make_adapter(alice), environments=environments, **changes)
    answer = alice.api.post("/api/v1/jobs", spec)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert allowed in error["detail"]


def test_a_list_of_names_without_end_is_refused_at_once(alice: Person) -> None:
    spec = make_policy_spec("rl", make_adapter(alice), unexplored=["elbow"] * 100_000)
    answer = alice.api.post("/api/v1/jobs", spec)
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/unexplored"]
    assert len(answer.content) < 2_000
