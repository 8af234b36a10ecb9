"""Start from a shell: what to type to get a first job running, with the lab's own names and ids in it."""

import json
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.selectors import version_list
from tenants.models import Tenant
from tenants.requests import PageRequest

KEY = "jnx_..."
_ID = "DATASET_VERSION_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """``language``: as its tab says; ``id``: of its element."""

    id: str
    language: str
    code: str


def newest_ready(tenant: Tenant) -> DatasetVersion | None:
    """The version that a first job would learn from."""
    return version_list(tenant).filter(state=VersionState.READY).first()


def first_base() -> str:
    return next(iter(settings.JOYNEXUS_BASE_MODELS))


def first_job(version: DatasetVersion | None) -> dict[str, Any]:
    """A specification that is admitted as it is, if there is a dataset."""
    return {
        "kind": "sft",
        "name": "first job",
        "base_model": first_base(),
        "head": {"type": "mlp", "horizon": 4},
        "dataset": {"id": str(version.pk) if version else _ID, "image_size": 64},
        "training": {"steps": 400, "batch_size": 16},
        "optimizer": {"lr": 0.001},
    }


def snippets(tenant: Tenant, origin: str, version: DatasetVersion | None) -> tuple[Snippet, ...]:
    """The same as curl and as Python. ``origin``: scheme and host that this page came from."""
    return (
        Snippet(id="shell-curl", language="curl", code=_curl(tenant, origin, version)),
        Snippet(id="shell-python", language="Python", code=_python(tenant, origin, version)),
    )


def snippets_context(request: PageRequest) -> dict[str, Any]:
    """Those of whoever asks, for a page: with their newest dataset, and at the address they came to."""
    version, origin = newest_ready(request.tenant), request.build_absolute_uri("/").rstrip("/")
    return {"version": version, "snippets": snippets(request.tenant, origin, version)}


def _curl(tenant: Tenant, origin: str, version: DatasetVersion | None) -> str:
    head = f"# {_plain(tenant.name)}: keys are under Settings\nKEY={KEY}\n"
    upload = (
        f'curl "{origin}/api/v1/datasets?name=pushes" \\\n  -H "Authorization: Bearer $KEY" \\\n'
        '  -H "Idempotency-Key: upload-1" \\\n  -H "Content-Type: application/zip" \\\n'
        "  --data-binary @recording.zip\n\n"
    )
    body = "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in first_job(version).items()) + "}"
    submit = (
        f'curl {origin}/api/v1/jobs \\\n  -H "Authorization: Bearer $KEY" \\\n  -H "Idempotency-Key: job-1" \\\n'
        f"  -H \"Content-Type: application/json\" \\\n  -d '{body}'"
    )
    return head + ("" if version else upload) + _told(version) + submit


def _python(tenant: Tenant, origin: str, version: DatasetVersion | None) -> str:
    spec = first_job(version)
    if version is None:
        spec["dataset"]["id"] = "VERSION"
    lines = [f"        {json.dumps(name)}: {json.dumps(value)}," for name, value in spec.items()]
    body = "\n".join(lines).replace('"VERSION"', 'version["id"]')
    upload = (
        '    version = client.datasets.upload("recording/", name="pushes")\n'
        '    client.datasets.wait_ready(version["id"])\n'
    )
    return (
        f"# {_plain(tenant.name)}: keys are under Settings\n"
        "from joynexus_client import Client\n\n"
        f'with Client("{origin}", "{KEY}") as client:\n'
        + ("" if version else upload)
        + "".join(f"    {line}\n" for line in _told(version).splitlines())
        + f"    job = client.jobs.submit({{\n{body}\n    }})\n"
        '    print(client.jobs.wait(job["id"])["state"])'
    )


def _told(version: DatasetVersion | None) -> str:
    return f"# on {_plain(version.dataset.name)}, version {version.number}\n" if version else ""


def _plain(name: str) -> str:
    """A name in a comment: one line of printable characters."""
    return "".join(c for c in name if c.isprintable())
