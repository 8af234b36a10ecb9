"""Submitting: durable or refused, and a refusal names the field, the value and what is allowed."""

from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Job, OutboxMessage, RuntimeSnapshot
from jobs.services import outbox
from jobs.services.submit import job_submit
from tenants.datasets.models import VersionState
from tenants.errors import ApplicationError
from tenants.scope import platform_scope
from tests.support.factories import make_summary
from tests.support.jobs import events_of, make_job, make_spec, make_version, states_of
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def refusals(person: Person, spec: Any) -> dict[str, tuple[str, str]]:
    """Pointer -> (code, sentence) of a refused submit, which must leave no job behind."""
    with pytest.raises(ApplicationError) as refused:
        job_submit(tenant=person.tenant, actor=person.actor, spec=spec)
    assert refused.value.status == 422
    with platform_scope():
        assert not Job.objects.exists()
    assert not OutboxMessage.objects.exists()
    return {error.pointer: (error.code, error.detail) for error in refused.value.errors}


def test_a_submitted_job_is_queued_with_its_first_event_and_a_dispatch_message(alice: Person) -> None:
    job = make_job(alice)
    assert (job.state, job.attempt, job.total_steps) == ("queued", 0, 200)
    assert job.created_by == alice.user
    assert states_of(job) == ["queued"]
    assert events_of(job)[0].seq == job.last_seq == 1
    assert OutboxMessage.objects.get().key == str(job.pk)


def test_the_stored_specification_spells_out_every_default(alice: Person) -> None:
    spec = make_job(alice).spec
    assert spec["optimizer"]["lr"] == 1e-4
    assert spec["head"]["width"] == 256


def test_a_broker_that_is_down_costs_nothing_but_a_nudge(
    alice: Person, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ConnectionRefusedError("no broker")

    monkeypatch.setattr(outbox.current_app, "send_task", refuse)
    version = make_version(alice)
    with django_capture_on_commit_callbacks(execute=True):
        answer = alice.api.post("/api/v1/jobs", make_spec(version))
    assert answer.status_code == 202
    assert OutboxMessage.objects.get().sent_at is None


def test_an_unknown_field_is_refused_by_name_with_the_fields_there_are(alice: Person) -> None:
    found = refusals(alice, make_spec(make_version(alice), head={"wdth": 64}))
    code, detail = found["/head/wdth"]
    assert code == "extra_forbidden"
    assert "'wdth'" in detail
    assert "width" in detail


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"training": {"steps": 0}}, "/training/steps", ["0", "1"]),
        ({"head": {"type": "transformer"}}, "/head", ["transformer", "gr00t", "oft", "mlp"]),
        ({"head": {"horizon": 99}}, "/head/horizon", ["99", "64"]),
        ({"head": {"dropout": 1.5}}, "/head/dropout", ["1.5", "1"]),
        ({"head": {"tap": "somewhere"}}, "/head/tap", ["somewhere", "vision"]),
        ({"normalization": "none"}, "/normalization", ["none", "quantile"]),
        ({"kind": "dpo"}, "/kind", ["dpo", "sft", "rl", "evaluation", "rollout"]),
    ],
)
def test_a_value_outside_its_range_is_named_with_what_is_allowed(
    alice: Person, change: dict[str, Any], pointer: str, words: list[str]
) -> None:
    _, detail = refusals(alice, make_spec(make_version(alice), **change))[pointer]
    assert all(word in detail for word in words), detail


def test_a_width_that_the_heads_do_not_divide_is_refused(alice: Person) -> None:
    found = refusals(alice, make_spec(make_version(alice), head={"type": "gr00t", "width": 100, "heads": 12}))
    assert any("width 100" in detail for _, detail in found.values()), found


def test_an_unknown_base_model_is_answered_with_the_resident_ones(alice: Person) -> None:
    code, detail = refusals(alice, make_spec(make_version(alice), base_model="gpt"))["/base_model"]
    assert code == "unknown_base_model"
    assert "'gpt'" in detail
    assert "tiny-qwen3-vl" in detail


def test_a_tap_beyond_the_bases_last_layer_is_refused_once_the_runtime_has_told_its_layers(alice: Person) -> None:
    status = InMemoryRuntime().status()
    RuntimeSnapshot.objects.create(journal_id="j", status=status.model_dump(mode="json"), seen_at=timezone.now())
    code, detail = refusals(alice, make_spec(make_version(alice), head={"tap": "layer:4"}))["/head/tap"]
    assert code == "tap_out_of_range"
    assert "layer:3" in detail
    assert make_job(alice, head={"tap": "layer:-4"}).state == "queued"


def test_a_dataset_of_another_tenant_is_answered_exactly_like_an_unknown_one(alice: Person, charlie: Person) -> None:
    foreign = str(make_version(charlie).pk)
    missing = "00000000-0000-4000-8000-000000000000"
    answers = [refusals(alice, make_spec(dataset={"id": id_}))["/dataset/id"] for id_ in (foreign, missing, "x")]
    assert {code for code, _ in answers} == {"unknown_dataset"}
    assert answers[0][1].replace(foreign, "ID") == answers[1][1].replace(missing, "ID")


@pytest.mark.parametrize("state", [VersionState.RECEIVED, VersionState.VALIDATING, VersionState.INVALID])
def test_a_dataset_that_is_not_ready_is_refused_with_its_state(alice: Person, state: VersionState) -> None:
    version = make_version(alice, state=state, summary=None)
    code, detail = refusals(alice, make_spec(version))["/dataset/id"]
    assert code == "dataset_not_ready"
    assert state in detail


@pytest.mark.parametrize(
    ("summary", "change", "pointer", "code", "words"),
    [
        ({}, {"dataset": {"cameras": ["wrist"]}}, "/dataset/cameras", "unknown_camera", ["wrist", "images.base"]),
        ({}, {"dataset": {"cameras": []}}, "/dataset/cameras", "no_camera", ["images.base"]),
        (
            {},
            {"dataset": {"cameras": ["observation.images.base"] * 2}},
            "/dataset/cameras",
            "repeated_camera",
            ["twice"],
        ),
        ({}, {"dataset": {"action_dim": 7}}, "/dataset/action_dim", "action_dim_mismatch", ["7", "2"]),
        ({"state_dim": 0}, {}, "/dataset/use_state", "no_state", ["true", "false"]),
        ({}, {"head": {"horizon": 21}}, "/head/horizon", "horizon_too_long", ["21", "20"]),
        ({"episodes": 1}, {}, "/training/holdout_fraction", "too_few_episodes", ["0.1", "0"]),
        ({"cameras": ()}, {}, "/dataset/cameras", "no_camera", ["[]"]),
    ],
)
def test_a_disagreement_with_the_dataset_names_both_sides(
    alice: Person, summary: dict[str, Any], change: dict[str, Any], pointer: str, code: str, words: list[str]
) -> None:
    version = make_version(alice, summary=make_summary(**summary))
    found, detail = refusals(alice, make_spec(version, **change))[pointer]
    assert found == code
    assert all(word in detail for word in words), detail


@pytest.mark.parametrize(("cameras", "chosen"), [((), None), (("observation.images.base",), [])])
def test_a_policy_of_its_state_alone_needs_no_camera_but_a_head_that_reads_words(
    alice: Person, cameras: tuple[str, ...], chosen: list[str] | None
) -> None:
    version = make_version(alice, summary=make_summary(cameras=cameras))
    blind = {"dataset": {"cameras": chosen}}
    code, detail = refusals(alice, make_spec(version, head={"tap": "vision"}, **blind))["/dataset/cameras"]
    assert (code, "layer:n" in detail) == ("no_camera", True)
    admitted = make_spec(version, head={"tap": "layer:0"}, **blind)
    assert job_submit(tenant=alice.tenant, actor=alice.actor, spec=admitted).state == "queued"


def test_every_disagreement_is_told_at_once(alice: Person) -> None:
    spec = make_spec(make_version(alice), base_model="x", dataset={"action_dim": 9}, head={"horizon": 64})
    assert set(refusals(alice, spec)) == {"/base_model", "/dataset/action_dim", "/head/horizon"}
