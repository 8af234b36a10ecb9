"""Python client of JoyNexus: upload demonstrations, train policies, evaluate and improve them, fetch what comes of it.

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
        (adapter,) = client.jobs.artifacts(job["id"], kind="adapter")
        client.artifacts.download(adapter["id"], to="adapter.zip")
        trial = client.jobs.submit({
            "kind": "evaluation",
            "name": "push, 50 fresh seeds",
            "policy": {"artifact": adapter["id"]},
            "environments": [{"id": "PushCube-v1"}],
        })
        client.jobs.wait(trial["id"])
        print(client.jobs.evaluation(trial["id"])["overall"])
        for number, film in enumerate(client.jobs.artifacts(trial["id"], kind="video")):
            client.artifacts.download(film["id"], to=f"{number}.mp4")
        better = client.jobs.submit({
            "kind": "rl",
            "name": "push, improved",
            "policy": {"artifact": adapter["id"]},
            "environment": {"id": "PushCube-v1"},
            "algorithm": {"type": "ppo"},
            "exploration": {"type": "gaussian"},
            "executed_steps": 4,
            "training": {"iterations": 40},
        })
        client.jobs.wait(better["id"], timeout_s=3600)
        played = client.jobs.submit({
            "kind": "rollout",
            "name": "more pushes",
            "policy": {"artifact": client.jobs.artifacts(better["id"], kind="adapter")[0]["id"]},
            "environment": {"id": "PushCube-v1"},
            "dataset_name": "pushed by the policy",
            "episodes": 100,
        })
        client.jobs.wait(played["id"])
        client.datasets.wait_ready(client.jobs.wait_recorded(played["id"]))  # the next fine-tuning may use it

Everything the server refuses is an `ApiError` with its code, its sentence and the refused fields. Requests are
repeated when the connection or the server fails for a moment; what creates or spends carries one idempotency key
over all repeats, so it happens once.
"""

from joynexus_client.answers import (
    Artifact,
    DatasetImport,
    Episode,
    Estimate,
    EvaluationReport,
    Event,
    EventPage,
    Job,
    MetricsPage,
    PolicyRef,
    PolicyVersion,
    Quota,
    Series,
    SuccessRate,
    SuiteTotals,
    TaskResult,
    Totals,
    Version,
)
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
    Stale,
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
    "DatasetImport",
    "Episode",
    "Estimate",
    "EvaluationReport",
    "Event",
    "EventPage",
    "FieldProblem",
    "Forbidden",
    "Invalid",
    "Job",
    "JoyNexusError",
    "MetricsPage",
    "NotFound",
    "PolicyRef",
    "PolicyVersion",
    "Quota",
    "Series",
    "Stale",
    "SuccessRate",
    "SuiteTotals",
    "TaskResult",
    "Timeout",
    "Totals",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Version",
]
