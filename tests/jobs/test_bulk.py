"""One act on many jobs: each is done or refused on its own, whoever else is in the list."""

import uuid
from typing import Any

import pytest

from jobs.models import Job, JobTag
from jobs.services.bulk import JOBS_MAX, BulkAction, jobs_act
from jobs.services.cancel import job_cancel
from tenants.audit.models import AuditEvent
from tenants.errors import ApplicationError
from tenants.scope import platform_scope
from tests.support.jobs import make_job, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db

PATH = "/api/v1/jobs/bulk"


def ended(person: Person, **fields: Any) -> Job:
    return job_cancel(tenant=person.tenant, job_id=make_job(person, **fields).pk)


def tags_of(job: Job) -> list[str]:
    with platform_scope():
        return sorted(JobTag.objects.filter(job_id=job.pk).values_list("name", flat=True))


def test_each_job_is_archived_or_says_why_not_in_the_order_asked(
    bob: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    done, (live, _), foreign, missing = ended(bob, name="done"), start_job(bob, runtime), ended(charlie), uuid.uuid4()
    body = {"jobs": [str(live.pk), str(done.pk), str(foreign.pk), str(missing)], "action": "archive"}
    answer = bob.api.post(PATH, body)
    assert answer.status_code == 200, answer.content
    told = answer.json()["results"]
    assert [row["job"] for row in told] == body["jobs"]
    assert [row["code"] for row in told] == ["job_live", "", "not_found", "not_found"]
    assert [row["done"] for row in told] == [False, True, False, False]
    assert told[1]["name"] == "done"
    assert "cancel it first" in told[0]["detail"]
    assert told[2] | {"job": ""} == told[3] | {"job": ""}
    assert [reread(job).archived_at is not None for job in (live, done, foreign)] == [False, True, False]


def test_cancelling_many_asks_the_live_ones_to_stop_and_refuses_what_has_succeeded(
    bob: Person, runtime: InMemoryRuntime
) -> None:
    waits, (runs, _), over = make_job(bob), start_job(bob, runtime), make_job(bob)
    with platform_scope():
        Job.objects.filter(pk=over.pk).update(state="succeeded")
    told = jobs_act(by=bob.actor, tenant=bob.tenant, job_ids=[waits.pk, runs.pk, over.pk], action=BulkAction.CANCEL)
    assert [(result.state, result.code) for result in told] == [
        ("cancelled", ""),
        ("cancelling", ""),
        ("succeeded", "job_finished"),
    ]
    with platform_scope():
        acts = AuditEvent.objects.filter(verb="job.cancelled").values_list("object_id", flat=True)
        assert sorted(acts) == sorted([str(waits.pk), str(runs.pk)])


def test_a_tag_is_put_on_beside_the_others_and_taken_off_alone(bob: Person) -> None:
    plain, tagged = make_job(bob), make_job(bob, tags=["nightly"])
    ids = [plain.pk, tagged.pk]
    assert all(
        result.done
        for result in jobs_act(by=bob.actor, tenant=bob.tenant, job_ids=ids, action=BulkAction.TAG, tag="paper-fig3")
    )
    assert (tags_of(plain), tags_of(tagged)) == (["paper-fig3"], ["nightly", "paper-fig3"])
    jobs_act(by=bob.actor, tenant=bob.tenant, job_ids=ids, action=BulkAction.UNTAG, tag="nightly")
    assert (tags_of(plain), tags_of(tagged)) == (["paper-fig3"], ["paper-fig3"])


def test_a_job_that_has_its_twenty_tags_is_refused_alone(bob: Person) -> None:
    full, free = make_job(bob, tags=[f"t{number}" for number in range(20)]), make_job(bob)
    told = jobs_act(by=bob.actor, tenant=bob.tenant, job_ids=[full.pk, free.pk], action=BulkAction.TAG, tag="one-more")
    assert [result.done for result in told] == [False, True]
    assert "20" in told[0].detail
    assert len(tags_of(full)) == 20


@pytest.mark.parametrize(
    ("action", "tag", "count", "pointer"),
    [
        (BulkAction.TAG, "", 1, "/tag"),
        (BulkAction.TAG, "No Spaces", 1, "/tag"),
        (BulkAction.CANCEL, "stray", 1, "/tag"),
        (BulkAction.CANCEL, "", 0, "/jobs"),
        (BulkAction.CANCEL, "", JOBS_MAX + 1, "/jobs"),
    ],
)
def test_an_act_that_makes_no_sense_is_refused_as_a_whole(
    bob: Person, action: BulkAction, tag: str, count: int, pointer: str
) -> None:
    ids = [uuid.uuid4() for _ in range(count)]
    with pytest.raises(ApplicationError) as caught:
        jobs_act(by=bob.actor, tenant=bob.tenant, job_ids=ids, action=action, tag=tag)
    assert [error.pointer for error in caught.value.errors] == [pointer]


def test_the_same_request_again_gets_the_first_answer_and_does_nothing(bob: Person) -> None:
    job, headers = ended(bob), {"Idempotency-Key": str(uuid.uuid4())}
    body = {"jobs": [str(job.pk)], "action": "archive"}
    first = bob.api.post(PATH, body, headers=headers)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(archived_at=None)
    again = bob.api.post(PATH, body, headers=headers)
    assert (again.json(), again["Idempotent-Replayed"]) == (first.json(), "true")
    assert reread(job).archived_at is None


def test_an_act_needs_an_idempotency_key_and_the_right_to_write(bob: Person, viewer: Person) -> None:
    body = {"jobs": [str(make_job(bob).pk)], "action": "cancel"}
    assert viewer.api.post(PATH, body).status_code == 403
    assert bob.api.post(PATH, body, headers={"Idempotency-Key": ""}).status_code == 400
    for wrong in ({"jobs": [], "action": "cancel"}, {"jobs": ["x"], "action": "cancel"}, {**body, "action": "delete"}):
        assert bob.api.post(PATH, wrong).status_code == 422


def test_the_number_of_queries_grows_by_a_few_for_each_job(bob: Person, django_assert_max_num_queries: Any) -> None:
    ids = [make_job(bob).pk for _ in range(5)]
    with django_assert_max_num_queries(5 * 14 + 5):
        jobs_act(by=bob.actor, tenant=bob.tenant, job_ids=ids, action=BulkAction.TAG, tag="a")
