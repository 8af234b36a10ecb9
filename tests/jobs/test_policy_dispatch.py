"""What the runtime is told of a job that starts from a policy, and what comes back of it."""

import pytest

from gpu_runtime.protocol.messages import MetricsRecorded, PolicyBinding
from jobs.models import Artifact
from jobs.services.dispatch import Dispatch, job_dispatch
from tenants.scope import platform_scope
from tests.support.jobs import points_of, relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_job, start_policy_job
from tests.support.service_steps import publish, succeed
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("kind", ["rl", "evaluation", "rollout"])
def test_the_runtime_gets_the_adapter_by_its_own_name_and_hash(
    alice: Person, runtime: InMemoryRuntime, kind: str
) -> None:
    adapter = make_adapter(alice)
    job, key = start_policy_job(alice, runtime, kind, artifact=adapter)
    message = runtime.submitted[key]
    assert message.policy == PolicyBinding(
        artifact_id=adapter.runtime_key, sha256=adapter.sha256, base_model="tiny-qwen3-vl"
    )
    assert message.dataset is None
    assert message.spec.kind == kind
    assert message.spec.model_dump(mode="json") == job.spec
    assert job.state == "starting"


def test_a_job_on_demonstrations_is_bound_to_them_alone(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    assert runtime.submitted[key].policy is None
    assert runtime.submitted[key].dataset.version_id == str(job.dataset_version_id)


def test_what_reinforcement_learning_published_can_be_learned_from_again(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    first, key = start_policy_job(alice, runtime, "rl")
    published = publish(runtime, key, "adapter", b"PK", manifest=dict(first.policy.manifest))
    succeed(runtime, key, step=20, total_steps=20)
    relay_all(runtime)
    with platform_scope():
        adapter = Artifact.objects.get(runtime_key=published.artifact_id)
    second, key = start_policy_job(alice, runtime, "evaluation", artifact=adapter)
    assert runtime.submitted[key].policy.artifact_id == published.artifact_id
    assert second.policy == adapter


def test_metrics_and_progress_of_a_policy_job_are_kept(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_policy_job(alice, runtime, "rl")
    runtime.tell(*key, MetricsRecorded(step=3, values={"rollout/return": 1.5, "train/approx_kl": float("nan")}))
    relay_all(runtime)
    found = {point.series: (point.step, point.value, point.special) for point in points_of(job)}
    assert found == {"rollout/return": (3, 1.5, ""), "train/approx_kl": (3, None, "nan")}
    assert reread(job).step == 3


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [("evaluation", "application/json"), ("video", "video/mp4"), ("dataset", "application/zip")],
)
def test_each_kind_of_file_is_kept_with_its_media_type(
    alice: Person, runtime: InMemoryRuntime, kind: str, media_type: str
) -> None:
    job, key = start_policy_job(alice, runtime, "rollout")
    publish(runtime, key, kind, b"bytes", media_type=media_type, manifest={"seed": 50_000})
    relay_all(runtime)
    with platform_scope():
        row = Artifact.objects.get(job=job)
    assert (row.kind, row.media_type, row.manifest) == (kind, media_type, {"seed": 50_000})


def test_a_policy_the_runtime_lost_fails_the_job_with_the_runtimes_words(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job = make_policy_job(alice, "evaluation")
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.FAILED
    job = reread(job)
    assert (job.state, job.reason) == ("failed", "policy_missing")
    assert "no policy 'adapter-0' among the artifacts" in job.message
