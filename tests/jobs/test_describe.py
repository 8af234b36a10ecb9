"""What people say of a job: its name, note, tags and archiving; nobody overwrites what they have not seen."""

import uuid
from typing import Any

import pytest

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Job, JobTag
from jobs.services import describe
from jobs.services.cancel import job_cancel
from jobs.services.describe import job_describe
from jobs.services.transition import job_reopen
from tenants.audit.models import AuditEvent
from tenants.errors import ApplicationError
from tenants.scope import platform_scope
from tests.support.jobs import make_job, relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def tags_of(job: Job) -> list[str]:
    with platform_scope():
        return sorted(JobTag.objects.filter(job_id=job.pk).values_list("name", flat=True))


def ended_job(person: Person, **fields: Any) -> Job:
    job = make_job(person, **fields)
    return job_cancel(tenant=person.tenant, job_id=job.pk, by=person.actor)


def events_of(verb: str) -> list[AuditEvent]:
    with platform_scope():
        return list(AuditEvent.objects.filter(verb=verb).order_by("pk"))


def refusal(**arguments: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        job_describe(**arguments)
    return caught.value


def test_a_job_is_renamed_noted_and_tagged_and_the_audit_log_says_what_was_before(bob: Person) -> None:
    job = make_job(bob, name="push", tags=["old"])
    told = job_describe(
        by=bob.actor, tenant=bob.tenant, job_id=job.pk, name="push harder", note="**lr** too high", tags=["b", "a"]
    )
    assert (told.name, told.note, told.described, tags_of(job)) == ("push harder", "**lr** too high", 2, ["a", "b"])
    [event] = events_of("job.described")
    assert event.before == {"name": "push", "note": "", "tags": ["old"]}
    assert event.after == {"name": "push harder", "note": "**lr** too high", "tags": ["a", "b"]}
    assert (event.actor_name, event.object_id) == ("bob@example.org", str(job.pk))


def test_what_changes_nothing_is_no_act_and_no_new_version(bob: Person) -> None:
    job = make_job(bob, name="push", tags=["a", "b"])
    told = job_describe(by=bob.actor, tenant=bob.tenant, job_id=job.pk, name="push", tags=["b", "a"], archived=False)
    assert told.described == 1
    assert events_of("job.described") == []


def test_who_has_not_seen_the_newest_description_changes_nothing(alice: Person, bob: Person) -> None:
    job = make_job(alice)
    job_describe(by=bob.actor, tenant=bob.tenant, job_id=job.pk, expected=1, note="Bob's")
    refused = refusal(by=alice.actor, tenant=alice.tenant, job_id=job.pk, expected=1, note="Alice's")
    assert (refused.status, refused.code, refused.extra) == (412, "stale", {"described": 2})
    assert reread(job).note == "Bob's"


def test_of_two_at_the_same_moment_the_slower_one_looks_again_or_is_told(
    alice: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob writes between Alice's look and her write."""
    job, real = make_job(alice), describe._changes
    for expected in (None, 2):
        first = iter([True])

        def interrupted(row: Job, wanted: Any, first: Any = first) -> Any:
            told = real(row, wanted)
            if next(first, False):
                with platform_scope():
                    Job.objects.filter(pk=job.pk).update(note="Bob's", described=row.described + 1)
            return told

        monkeypatch.setattr(describe, "_changes", interrupted)
        arguments: dict[str, Any] = {
            "by": alice.actor,
            "tenant": alice.tenant,
            "job_id": job.pk,
            "name": f"{expected}",
        }
        if expected is None:
            assert job_describe(**arguments).described == 3
            assert (reread(job).name, reread(job).note) == ("None", "Bob's")
        else:
            assert refusal(**arguments, expected=3).code == "stale"
            assert reread(job).name == "None"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": "x" * 201}, "/name"),
        ({"note": "x" * 20_001}, "/note"),
        ({"note": "a\0b"}, "/note"),
        ({"tags": ["Upper"]}, "/tags/0"),
        ({"tags": ["ok", "no spaces"]}, "/tags/1"),
        ({"tags": ["-dash"]}, "/tags/0"),
        ({"tags": ["a" * 51]}, "/tags/0"),
        ({"tags": ["a", "a"]}, "/tags"),
        ({"tags": [f"t{number}" for number in range(21)]}, "/tags"),
    ],
)
def test_a_field_that_is_not_allowed_is_named_and_nothing_changes(
    bob: Person, fields: dict[str, Any], pointer: str
) -> None:
    job = make_job(bob, name="push")
    refused = refusal(by=bob.actor, tenant=bob.tenant, job_id=job.pk, **fields)
    assert (refused.status, [error.pointer for error in refused.errors]) == (422, [pointer])
    assert (reread(job).described, tags_of(job)) == (1, [])


def test_twenty_tags_of_fifty_characters_fit(bob: Person) -> None:
    job, tags = make_job(bob), [f"{number:02}{'x' * 48}" for number in range(20)]
    job_describe(by=bob.actor, tenant=bob.tenant, job_id=job.pk, tags=tags)
    assert tags_of(job) == tags


def test_a_live_job_is_not_archived_and_the_refusal_says_what_to_do(bob: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(bob, runtime)
    refused = refusal(by=bob.actor, tenant=bob.tenant, job_id=job.pk, archived=True)
    assert (refused.status, refused.code, refused.errors[0].pointer) == (409, "job_live", "/archived")
    assert refused.detail == "The job is starting. Allowed: archiving one that has ended; cancel it first, or wait."
    runtime.tell_state(*key, WorkloadState.FAILED)
    relay_all(runtime)
    assert job_describe(by=bob.actor, tenant=bob.tenant, job_id=job.pk, archived=True).archived_at is not None


def test_an_archived_job_is_in_no_list_but_opens_by_its_id(bob: Person) -> None:
    job, path = ended_job(bob), "/api/v1/jobs"
    job_describe(by=bob.actor, tenant=bob.tenant, job_id=job.pk, archived=True)
    assert bob.api.get(path).json()["results"] == []
    assert bob.api.get(f"{path}/{job.pk}").json()["archived_at"] is not None
    for query in ("archived=true", "archived=all"):
        assert [row["id"] for row in bob.api.get(f"{path}?{query}").json()["results"]] == [str(job.pk)]
    assert bob.api.get(f"/api/v1/dataset-versions/{job.dataset_version_id}/jobs").json()["results"] != []
    job_describe(by=bob.actor, tenant=bob.tenant, job_id=job.pk, archived=False)
    assert len(bob.api.get(path).json()["results"]) == 1
    assert [event.verb for event in [*events_of("job.archived"), *events_of("job.unarchived")]] == [
        "job.archived",
        "job.unarchived",
    ]


def test_an_archived_job_that_runs_again_is_listed_again(bob: Person) -> None:
    job = ended_job(bob)
    archived = job_describe(by=bob.actor, tenant=bob.tenant, job_id=job.pk, archived=True)
    assert job_reopen(archived, reason="requeued_by_operator", message="Again.") is not None
    assert reread(job).archived_at is None


def test_charlie_finds_no_job_to_describe(alice: Person, charlie: Person) -> None:
    job = make_job(alice)
    for wanted in (job.pk, uuid.uuid4()):
        assert refusal(by=charlie.actor, tenant=charlie.tenant, job_id=wanted, note="hi").status == 404
    assert reread(job).note == ""


def test_over_rest_the_etag_of_get_guards_the_change(alice: Person, bob: Person) -> None:
    job = make_job(alice)
    path = f"/api/v1/jobs/{job.pk}"
    seen = bob.api.get(path)["ETag"]
    changed = bob.api.patch(path, {"tags": ["paper-fig3"], "note": "x"}, headers={"If-Match": seen})
    assert (changed.status_code, changed.json()["tags"], changed.json()["note"]) == (200, ["paper-fig3"], "x")
    assert changed["ETag"] not in ("", seen)
    late = alice.api.patch(path, {"name": "late"}, headers={"If-Match": seen})
    assert (late.status_code, late.json()["type"].rpartition(":")[2]) == (412, "stale")
    assert alice.api.patch(path, {"name": "any"}, headers={"If-Match": "*"}).status_code == 200
    assert alice.api.patch(path, {"name": "none"}).json()["name"] == "none"
    assert bob.api.patch(path, {"colour": "red"}).status_code == 422


def test_a_viewer_describes_nothing(alice: Person, viewer: Person) -> None:
    job = make_job(alice)
    assert viewer.api.patch(f"/api/v1/jobs/{job.pk}", {"note": "x"}).status_code == 403
    assert reread(job).note == ""
