"""For each REST route that changes something: what makes it succeed. The audit matrix sends exactly this."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jobs.services.cancel import job_cancel
from tests.support.everybody import rows_of
from tests.support.factories import DatasetFactory, DatasetVersionFactory, UserFactory
from tests.support.jobs import make_job, make_spec, make_version
from tests.support.story import Story
from tests.support.webhooks import URL

BYTES = b"PK\x05\x06" + bytes(18)  # an empty archive
_UPLOAD = {"name": "push", "size_bytes": len(BYTES), "sha256": hashlib.sha256(BYTES).hexdigest()}

# Routes that write no event, with the reason.
SILENT = {
    "POST /api/v1/jobs/estimate": "it changes nothing",
    "PATCH /api/v1/uploads/<uuid:upload_id>": "a chunk; the upload's start, end and abort are told",
}


@dataclass(slots=True, kw_only=True)
class Act:
    """Ids for the path, the body, and how it is sent."""

    ids: dict[str, str] = field(default_factory=dict)
    body: Any = None
    query: str = ""
    sent: dict[str, Any] = field(default_factory=dict)


def act_of(route: str, story: Story) -> Act:
    """The act on fresh rows of Alice's lab. KeyError for a route nobody declared."""
    act = Act(ids=rows_of(story), body=BODIES.get(route))
    if route in PREPARED:
        PREPARED[route](act, story)
    elif route not in BODIES:
        raise KeyError(route)
    return act


def _job(act: Act, story: Story) -> None:
    act.body = make_spec(make_version(story.alice))


def _bulk(act: Act, story: Story) -> None:
    act.body = {"jobs": [act.ids["job_id"]], "action": "cancel"}


def _member(act: Act, story: Story) -> None:
    act.body = {"email": UserFactory().email, "role": "viewer"}


def _quota(act: Act, story: Story) -> None:
    path = f"/api/v1/projects/{act.ids['project_id']}/quotas/{act.ids['resource']}"
    assert story.alice.api.put(path, {"limit": 3}, headers={"If-Match": "*"}).status_code < 300


def _dataset(act: Act, story: Story) -> None:
    """One that no job uses."""
    version = DatasetVersionFactory(dataset=DatasetFactory(tenant=story.alice.tenant))
    act.ids |= {"dataset_id": str(version.dataset_id), "version_id": str(version.pk)}


def _archive(act: Act, story: Story) -> None:
    act.query, act.body, act.sent = "?name=push", BYTES, {"content_type": "application/zip"}


def _whole_upload(act: Act, story: Story) -> None:
    path = story.alice.api.post("/api/v1/uploads", _UPLOAD)["Location"]
    headers = {"Upload-Offset": "0"}
    kind = "application/octet-stream"
    assert story.alice.api.patch(path, BYTES, content_type=kind, headers=headers).status_code == 200
    act.ids["upload_id"] = path.rpartition("/")[2]


def _ended_job(act: Act, story: Story) -> None:
    job = make_job(story.alice)
    job_cancel(tenant=story.alice.tenant, job_id=job.pk, by=story.alice.actor)
    act.ids["job_id"] = str(job.pk)


PREPARED: dict[str, Callable[[Act, Story], None]] = {
    "POST /api/v1/jobs": _job,
    "POST /api/v1/jobs/bulk": _bulk,
    "POST /api/v1/jobs/<uuid:job_id>/retry": _ended_job,
    "POST /api/v1/members": _member,
    "DELETE /api/v1/projects/<uuid:project_id>/quotas/<slug:resource>": _quota,
    "DELETE /api/v1/datasets/<uuid:dataset_id>": _dataset,
    "DELETE /api/v1/dataset-versions/<uuid:version_id>": _dataset,
    "POST /api/v1/datasets": _archive,
    "POST /api/v1/uploads/<uuid:upload_id>/complete": _whole_upload,
}

BODIES: dict[str, Any] = {
    "PATCH /api/v1/members/<int:member_id>": {"role": "viewer"},
    "DELETE /api/v1/members/<int:member_id>": None,
    "POST /api/v1/invitations": {"email": "eve@example.org", "role": "viewer"},
    "DELETE /api/v1/invitations/<uuid:invitation_id>": None,
    "POST /api/v1/projects": {"name": "new"},
    "PATCH /api/v1/projects/<uuid:project_id>": {"name": "renamed"},
    "POST /api/v1/projects/<uuid:project_id>/archive": None,
    "PUT /api/v1/projects/<uuid:project_id>/quotas/<slug:resource>": {"limit": 3},
    "POST /api/v1/keys": {"name": "ci"},
    "DELETE /api/v1/keys/<uuid:key_id>": None,
    "PATCH /api/v1/datasets/<uuid:dataset_id>": {"name": "renamed"},
    "POST /api/v1/uploads": _UPLOAD,
    "DELETE /api/v1/uploads/<uuid:upload_id>": None,
    "POST /api/v1/budgets": {"amount": "5", "project": "grasping"},
    "PATCH /api/v1/budgets/<uuid:budget_id>": {"amount": "6"},
    "DELETE /api/v1/budgets/<uuid:budget_id>": None,
    "POST /api/v1/webhooks": {"url": URL},
    "PATCH /api/v1/webhooks/<uuid:webhook_id>": {"enabled": False},
    "DELETE /api/v1/webhooks/<uuid:webhook_id>": None,
    "POST /api/v1/webhooks/<uuid:webhook_id>/rotate-secret": None,
    "POST /api/v1/webhooks/<uuid:webhook_id>/test": None,
    "POST /api/v1/webhook-deliveries/<uuid:delivery_id>/redeliver": None,
    "PATCH /api/v1/jobs/<uuid:job_id>": {"note": "Better than the last one."},
    "POST /api/v1/jobs/<uuid:job_id>/cancel": None,
    "PATCH /api/v1/artifacts/<uuid:artifact_id>": {"keep_days": 3},
    "DELETE /api/v1/artifacts/<uuid:artifact_id>": None,
}
