"""What a job with LoRA would use: its adapter's memory, and device time that only its like tells."""

from html import unescape
from typing import Any

import pytest
from django.utils import timezone

from gpu_runtime.protocol.messages import RuntimeStatus
from jobs.models import RuntimeSnapshot
from jobs.selectors.runtime import runtime_bases
from tests.jobs.test_estimate import estimate, finish, units
from tests.jobs.test_submit import refusals
from tests.support.jobs import make_job, make_spec, make_version
from tests.support.memory_runtime import BASE, InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_spec
from tests.support.story import Person

pytestmark = pytest.mark.django_db
READS_TEXT = {"type": "mlp", "horizon": 4, "tap": "layer:-1"}
LORA = {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}
BOTH, ONLY_Q = 4 * 4 * (64 + 128) + 4 * 4 * (64 + 32), 4 * 4 * (64 + 128)  # rank, modules, inputs + outputs


def tell_bases(runtime: InMemoryRuntime, **changes: Any) -> None:
    """The runtime was seen; ``changes`` of its one base."""
    status: RuntimeStatus = runtime.status().model_copy(update={"bases": (BASE.model_copy(update=changes),)})
    RuntimeSnapshot.objects.create(
        journal_id=runtime.journal_id, status=status.model_dump(mode="json"), seen_at=timezone.now()
    )


def lora_spec(person: Person, **lora: Any) -> dict[str, Any]:
    return make_spec(make_version(person), head=READS_TEXT, lora=LORA | lora)


def test_parameters_gradients_and_both_moments_are_counted(alice: Person, runtime: InMemoryRuntime):
    tell_bases(runtime)
    assert runtime_bases()[BASE.name] == BASE
    assert estimate(alice, lora_spec(alice))["lora"] == {"parameters": BOTH, "memory_bytes": 16 * BOTH}
    only_q = estimate(alice, lora_spec(alice, target_modules=["q_proj"]))["lora"]
    assert only_q == {"parameters": ONLY_Q, "memory_bytes": 16 * ONLY_Q}
    twice = estimate(alice, lora_spec(alice, rank=8))["lora"]
    assert twice["parameters"] == 2 * BOTH


def test_without_lora_there_is_no_adapter_and_before_the_runtime_was_seen_no_size(
    alice: Person, runtime: InMemoryRuntime
):
    assert estimate(alice, lora_spec(alice))["lora"] == {"parameters": None, "memory_bytes": None}
    tell_bases(runtime, lora_modules=())
    assert estimate(alice, lora_spec(alice))["lora"] == {"parameters": None, "memory_bytes": None}
    assert estimate(alice, make_spec(make_version(alice)))["lora"] is None
    assert estimate(alice, make_policy_spec("rl", make_adapter(alice, lora=LORA)))["lora"] is None


def test_device_time_of_stored_features_is_no_experience_for_lora_nor_the_other_way_round(alice: Person):
    finish(make_job(alice, head=READS_TEXT), train_compute_us=3200)  # 200 steps of 16
    alone = estimate(alice, lora_spec(alice))["lines"][1]
    assert alone["high"] is None
    assert alone["basis"].startswith("unknown")
    assert "every epoch costs a forward and a backward pass" in alone["basis"]
    finish(make_job(alice, head=READS_TEXT, lora=LORA), train_compute_us=320_000)
    small = {"steps": 10, "batch_size": 10}
    told = estimate(alice, lora_spec(alice) | {"training": small})
    assert units(told)["train.compute_us"] == (10_000, 10_000, 10_000)
    assert told["lines"][1]["basis"].startswith("measured: median of the last 1 jobs")
    plain = estimate(alice, make_spec(make_version(alice), head=READS_TEXT, training=small))
    assert units(plain)["train.compute_us"] == (100, 100, 100)
    assert "LoRA" not in plain["lines"][1]["basis"]


def test_the_form_shows_the_adapters_size_only_with_lora(alice: Person, runtime: InMemoryRuntime):
    tell_bases(runtime)
    typed = {"kind": "sft", "name": "typed", "base_model": BASE.name, "dataset.id": str(make_version(alice).pk)}
    typed |= {"head.type": "mlp", "head.horizon": "4", "head.tap": "layer:-1", "training.steps": "10"}
    with_lora = typed | {"lora": "on", "lora.rank": "4"}
    shown = [unescape(alice.browser().post("/jobs/new/estimate/", one).content.decode()) for one in (typed, with_lora)]
    assert "LoRA on the device" not in shown[0]
    assert f"two moments of {BOTH:,} parameters" in shown[1]
    assert "73.7\u00a0kB" in shown[1]
    assert "LoRA reads no stored features" in shown[1]


@pytest.mark.parametrize(
    ("lora", "pointer", "code"),
    [
        ({"rank": 33}, "/lora/rank", "rank_too_high"),
        ({"target_modules": ["up_proj"]}, "/lora/target_modules", "unknown_target_modules"),
    ],
)
def test_an_adapter_that_does_not_fit_the_base_is_refused_before_it_is_queued(
    alice: Person, runtime: InMemoryRuntime, lora: dict[str, Any], pointer: str, code: str
):
    tell_bases(runtime)
    assert refusals(alice, lora_spec(alice, **lora))[pointer][0] == code
    RuntimeSnapshot.objects.all().delete()
    assert alice.api.post("/api/v1/jobs", lora_spec(alice, **lora)).status_code == 202  # the runtime will say it


def test_the_largest_rank_that_fits_is_accepted(alice: Person, runtime: InMemoryRuntime):
    tell_bases(runtime)
    assert alice.api.post("/api/v1/jobs", lora_spec(alice, rank=32)).status_code == 202
