"""Projects: what a lab groups its work by."""

import pytest

from tenants.errors import ApplicationError
from tenants.models import Project
from tenants.scope import platform_scope
from tenants.selectors import project_for
from tests.support.factories import ProjectFactory, make_key
from tests.support.story import Person, Story, api_client


def made(person: Person, **body: str):
    return person.api.post("/api/v1/projects", {"name": "Grasping study"} | body)


def test_a_project_gets_its_slug_from_the_name_or_as_given(alice: Person):
    assert made(alice).json()["slug"] == "grasping-study"
    assert made(alice, slug="g2").json()["slug"] == "g2"
    listed = {row["slug"] for row in alice.api.get("/api/v1/projects").json()["results"]}
    assert listed == {"default", "grasping-study", "g2"}


def test_a_slug_is_taken_once_and_a_name_without_letters_needs_one(alice: Person):
    made(alice)
    assert made(alice).json()["type"] == "urn:joynexus:problem:project-exists"
    assert made(alice, name="!!!").json()["errors"][0]["pointer"] == "/name"
    assert made(alice, slug="Not-A-Slug").json()["errors"][0]["pointer"] == "/slug"


def test_two_labs_may_have_projects_of_the_same_name(story: Story):
    assert made(story.alice).status_code == made(story.charlie).status_code == 201


def test_renaming_keeps_the_slug(alice: Person):
    project = made(alice).json()
    renamed = alice.api.patch(f"/api/v1/projects/{project['id']}", {"name": "Pushing"}).json()
    assert (renamed["name"], renamed["slug"]) == ("Pushing", "grasping-study")
    assert alice.api.get(f"/api/v1/projects/{project['id']}").json() == renamed


def test_an_archived_project_takes_nothing_new_and_its_keys_end(alice: Person):
    project = made(alice).json()
    key = alice.api.post("/api/v1/keys", {"name": "ci", "project": "grasping-study"}).json()["key"]
    path = f"/api/v1/projects/{project['id']}/archive"
    first = alice.api.post(path).json()
    assert first["archived_at"] is not None
    assert alice.api.post(path).json() == first
    assert api_client(key).get("/api/v1/me").status_code == 401
    refused = alice.api.post("/api/v1/keys", {"name": "ci", "project": "grasping-study"})
    assert refused.json()["errors"][0]["code"] == "project_archived"
    with pytest.raises(ApplicationError, match="archived"):
        project_for(alice.tenant, "grasping-study")


def test_the_default_project_stays(alice: Person):
    with platform_scope():
        default = Project.objects.get(tenant=alice.tenant)
    refused = alice.api.post(f"/api/v1/projects/{default.pk}/archive")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:joynexus:problem:default-project")


def test_new_work_goes_to_the_named_project_else_the_keys_else_the_default(alice: Person):
    mine = ProjectFactory(tenant=alice.tenant, slug="mine")
    bound, _ = make_key(alice.tenant, "researcher", alice.user, project=mine)
    actor = alice.actor.__class__(tenant=alice.tenant, role="researcher", user=alice.user, key=bound)
    assert project_for(alice.actor).slug == project_for(alice.tenant).slug == "default"
    assert project_for(alice.actor, "mine") == project_for(actor) == project_for(actor, "mine") == mine
    for who, slug, code in [(actor, "default", "not_this_keys"), (alice.actor, "none", "unknown_project")]:
        with pytest.raises(ApplicationError) as refused:
            project_for(who, slug)
        assert (refused.value.errors[0].pointer, refused.value.errors[0].code) == ("/project", code)


def test_a_key_bound_to_a_project_sees_that_one_and_makes_no_others(alice: Person):
    mine, other = (ProjectFactory(tenant=alice.tenant, slug=slug) for slug in ("mine", "other"))
    _, text = make_key(alice.tenant, "owner", alice.user, project=mine)
    api = api_client(text)
    assert [row["slug"] for row in api.get("/api/v1/projects").json()["results"]] == ["mine"]
    assert api.get(f"/api/v1/projects/{other.pk}").status_code == 404
    assert api.post(f"/api/v1/projects/{other.pk}/archive").status_code == 404
    assert api.post("/api/v1/projects", {"name": "third"}).status_code == 403
