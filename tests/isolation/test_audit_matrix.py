"""Every REST route that changes something writes an audit event, of the right actor, or says why not."""

import re
from pathlib import Path
from typing import Any

import pytest

from jobs.models import DatasetImport, ImportState
from tenants.audit.models import AuditEvent
from tenants.scope import platform_scope
from tests.isolation.acts import BODIES, PREPARED, SILENT, Act, act_of
from tests.support.dataset_imports import recorded
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.routes import api_routes, fill
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

IMPORT = "POST /api/v1/jobs/<uuid:job_id>/dataset-import"  # needs a runtime; it has a test of its own here
CHANGING = [route for route in api_routes() if not route.startswith("GET")]


@pytest.fixture(autouse=True)
def _own_storage(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.JOYNEXUS_DATASET_ROOT = tmp_path
    monkeypatch.setattr("tenants.datasets.services.nudge_validation", lambda version_id: None)


def events() -> list[AuditEvent]:
    with platform_scope():
        return list(AuditEvent.objects.order_by("pk"))


def send(person: Person, route: str, act: Act) -> Any:
    method, path = route.split(" ")
    headers = {"If-Match": "*", "X-Request-ID": "request-of-the-act"}
    call = getattr(person.api, method.lower())
    return call(fill(path, act.ids) + act.query, act.body, headers=headers, **act.sent)


def test_every_route_that_changes_something_is_in_one_list():
    declared = [*BODIES, *PREPARED, *SILENT, IMPORT]
    assert len(declared) == len(set(declared))
    assert sorted(declared) == CHANGING


@pytest.mark.parametrize("route", sorted({*BODIES, *PREPARED}))
def test_an_act_leaves_an_event_of_the_key_that_did_it(route: str, story: Story):
    act = act_of(route, story)
    before = len(events())
    answer = send(story.alice, route, act)
    assert 200 <= answer.status_code < 300, answer.content
    told = events()[before:]
    assert told, "nothing was written down"
    for event in told:
        assert event.tenant_id == story.alice.tenant.pk
        assert (event.actor_kind, event.actor_id) == ("key", str(story.alice.key_row.pk))
        assert event.request_id == "request-of-the-act"
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", event.verb)


@pytest.mark.parametrize("route", sorted({*BODIES, *PREPARED}))
def test_who_may_not_act_leaves_no_event(route: str, story: Story):
    act = act_of(route, story)
    before = len(events())
    assert send(story.viewer, route, act).status_code == 403
    send(story.charlie, route, act)  # an owner, so it may succeed in their own lab
    assert [event for event in events()[before:] if event.tenant_id == story.alice.tenant.pk] == []


def test_having_an_import_tried_again_leaves_an_event(alice: Person, monkeypatch: pytest.MonkeyPatch):
    job, artifact_id = recorded(alice, InMemoryRuntime())
    with platform_scope():
        DatasetImport.objects.filter(artifact_id=artifact_id).update(state=ImportState.FAILED)
    before = len(events())
    assert alice.api.post(f"/api/v1/jobs/{job.pk}/dataset-import").status_code == 202
    assert [(event.verb, event.actor_kind) for event in events()[before:]] == [("job.import_retried", "key")]
