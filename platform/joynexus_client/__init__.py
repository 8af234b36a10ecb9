"""Python client of JoyNexus: upload demonstrations, train a policy, fetch the adapter.

    from joynexus_client import Client

    with Client("https://joynexus.example", "jnx_...") as client:
        version = client.datasets.wait_ready(client.datasets.upload("recordings/push", name="push")["id"])
        job = client.jobs.submit({
            "kind": "sft",
            "name": "push, first try",
            "base_model": "tiny-qwen3-vl",
            "head": {"type": "mlp", "horizon": 4},
            "dataset": {"id": version["id"]},
            "training": {"steps": 500},
        })
        job = client.jobs.wait(job["id"], on_change=lambda job: print(job["state"], job["step"]))
        for artifact in client.jobs.artifacts(job["id"]):
            client.artifacts.download(artifact["id"], to="adapter.zip")

Everything the server refuses is an `ApiError` with its code, its sentence and the refused fields. Requests are
repeated when the connection or the server fails for a moment; what creates or spends carries one idempotency key
over all repeats, so it happens once.
"""

from joynexus_client.answers import Artifact, Event, EventPage, Job, MetricsPage, PolicyVersion, Series, Version
from joynexus_client.client import Client
from joynexus_client.errors import (
    ApiError,
    Conflict,
    Corrupted,
    FieldProblem,
    Forbidden,
    Invalid,
    JoyNexusError,
    NotFound,
    Timeout,
    Unauthorized,
    Unavailable,
    Unreachable,
)

__all__ = [
    "ApiError",
    "Artifact",
    "Client",
    "Conflict",
    "Corrupted",
    "Event",
    "EventPage",
    "FieldProblem",
    "Forbidden",
    "Invalid",
    "Job",
    "JoyNexusError",
    "MetricsPage",
    "NotFound",
    "PolicyVersion",
    "Series",
    "Timeout",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Version",
]
