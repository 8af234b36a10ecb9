"""Which jobs use a dataset version, and that they keep it."""

from jobs.models import Job
from tenants.datasets.models import DatasetVersion
from tenants.scope import platform_scope
from tests.support.jobs import make_job
from tests.support.story import Person, Story


def version_of(job: Job) -> DatasetVersion:
    with platform_scope():
        return job.dataset_version


def jobs_of(person: Person, version: DatasetVersion, query: str = ""):
    return person.api.get(f"/api/v1/dataset-versions/{version.pk}/jobs{query}")


def more_jobs(job: Job, count: int) -> list[Job]:
    """Copies of a job, of the same dataset version."""
    with platform_scope():
        copies = []
        for number in range(count):
            copy = Job.objects.get(pk=job.pk)
            copy.pk, copy._state.adding = None, True
            copy.id, copy.number = Job._meta.pk.get_default(), 1000 + number
            copy.save()
            copies.append(copy)
        return copies


def test_the_jobs_of_a_version_come_newest_first_and_by_the_page(alice: Person):
    job = make_job(alice)
    version = version_of(job)
    others = more_jobs(job, 2)
    make_job(alice)  # of another version
    first = jobs_of(alice, version, "?limit=2").json()
    assert [row["id"] for row in first["results"]] == [str(others[1].pk), str(others[0].pk)]
    rest = alice.api.get(first["next"]).json()
    assert [row["id"] for row in rest["results"]] == [str(job.pk)]


def test_a_version_that_nobody_uses_has_none_and_a_foreign_one_is_missing(story: Story):
    version = version_of(make_job(story.alice))
    assert len(jobs_of(story.alice, version).json()["results"]) == 1
    assert jobs_of(story.charlie, version).status_code == 404


def test_what_jobs_use_is_kept_and_five_of_them_are_named(alice: Person):
    job = make_job(alice)
    version = version_of(job)
    ids = {str(row.pk) for row in [job, *more_jobs(job, 6)]}
    answer = alice.api.delete(f"/api/v1/dataset-versions/{version.pk}")
    body = answer.json()
    assert (answer.status_code, body["type"], body["jobs_total"]) == (409, "urn:joynexus:problem:dataset-in-use", 7)
    assert len(body["jobs"]) == 5
    assert set(body["jobs"]) < ids
    assert "and 2 more" in body["detail"]
    assert all(named in body["detail"] for named in body["jobs"])
