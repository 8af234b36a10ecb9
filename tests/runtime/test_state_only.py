"""Policies without cameras: their prompts in the packed forward, features that do not vary, and whole jobs."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.data.declared import declared_from
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.environments.record import main as record
from gpu_runtime.models.act import TOLERANCE, act
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.errors import FeatureMismatch
from gpu_runtime.models.heads.features import Standardizer
from gpu_runtime.models.heads.whitening import Whitening
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.messages import DatasetBinding, SubmitJob, WorkloadState
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.protocol.state_only import why_it_needs_cameras
from gpu_runtime.services.dataset_admission import admit_sft
from gpu_runtime.services.errors import InvalidSubmit
from gpu_runtime.workflows.evaluate_cli import main as evaluate
from tests.support.backbones import random_feature
from tests.support.demonstrations import bind, make_dataset
from tests.support.environments import REACH
from tests.support.runtime import GR00T, MLP, OFT, ended, events_of, make_config, metric, running, submit_message

WORDS = VLAFeature(images=(), instruction="Move the red dot onto the green square.")
WIDTH, TOKENS = 8, 5
HEADS: dict[str, dict[str, Any]] = {
    "mlp": MLP | {"tap": "layer:0"},
    "oft": OFT | {"standardize": False},
    "gr00t": GR00T | {"tap": "layer:1"},
}


@pytest.fixture(scope="module")
def tiny() -> Qwen3VLBackbone:
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


# --- the forward ------------------------------------------------------------------------------------------------


def test_equal_prompts_of_words_alone_run_once_and_prompts_with_views_every_time(tiny: Qwen3VLBackbone) -> None:
    other = VLAFeature(images=(), instruction="push")
    seen = random_feature(np.random.default_rng(0))
    group = [WORDS, seen, WORDS, other, seen, WORDS]
    run: list[int] = []
    hook = tiny.model.language_model.layers[0].register_forward_hook(
        lambda _module, arguments, _output: run.append(arguments[0].shape[1])
    )
    encoded = tiny.encode(group, [{"layer:0"}] * len(group))
    hook.remove()
    once = tiny.tokens(WORDS) + tiny.tokens(other) + 2 * tiny.tokens(seen)
    assert sum(run) == once == tiny.tokens_together(group)
    assert torch.equal(encoded[0]["layer:0"], encoded[5]["layer:0"])
    encoded[0]["layer:0"].zero_()  # rows of its own: nobody else's change
    assert encoded[2]["layer:0"].abs().max() > 0


def test_equal_words_read_at_other_taps_are_not_taken_for_the_same(tiny: Qwen3VLBackbone) -> None:
    shallow, deep = tiny.encode([WORDS, WORDS], [{"layer:0"}, {"layer:0", "layer:-1"}])
    assert (shallow.keys(), deep.keys()) == ({"layer:0"}, {"layer:0", "layer:-1"})
    assert torch.equal(shallow["layer:0"], deep["layer:0"])


@pytest.mark.parametrize("tap", ["vision", "merged"])
def test_an_image_tap_of_words_alone_is_refused_before_anything_runs(tiny: Qwen3VLBackbone, tap: str) -> None:
    with pytest.raises(ValueError, match=f"sample 1: images: the tap '{tap}' needs at least one view, got none"):
        tiny.encode([WORDS, WORDS], [{"layer:0"}, {tap}])


# --- features that do not vary ----------------------------------------------------------------------------------


def still(samples: int, *, rounding: float) -> list[dict[str, torch.Tensor]]:
    """The same features for every sample, up to relative ``rounding``."""
    random = torch.Generator().manual_seed(0)
    common_LD = 3 * torch.randn(TOKENS, WIDTH, generator=random)
    noise_BLD = rounding * torch.randn(samples, TOKENS, WIDTH, generator=random)
    return [{"layer:0": common_LD * (1 + noise_LD)} for noise_LD in noise_BLD]


@pytest.mark.parametrize("rounding", [0.0, 1e-7])
def test_features_that_do_not_vary_have_no_component_and_whiten_to_exact_zeros(rounding: float) -> None:
    whitening = Whitening(WIDTH, 4)
    whitening.fit(still(32, rounding=rounding), "layer:0")
    assert whitening.projection_FP.abs().max() == 0
    assert torch.equal(whitening(still(3, rounding=1e-2), "layer:0"), torch.zeros(3, 4))
    with pytest.raises(FeatureMismatch, match=r"4.*allowed: 5"):
        whitening([{"layer:0": torch.zeros(TOKENS - 1, WIDTH)}], "layer:0")


@pytest.mark.parametrize("per_token", [True, False])
def test_where_nothing_moves_standardised_features_are_exact_zeros(per_token: bool) -> None:
    standardizer = Standardizer(WIDTH, per_token=per_token)
    rows = still(32, rounding=1e-7)
    if not per_token:  # one mean for all places: places must be equal too
        rows = [{"layer:0": row["layer:0"][:1].repeat(TOKENS, 1)} for row in rows]
    standardizer.fit(rows, "layer:0")
    grid = torch.stack([row["layer:0"] for row in still(3, rounding=1e-2)])
    assert torch.equal(standardizer(grid), torch.zeros(3, TOKENS, WIDTH))


def test_features_that_vary_a_little_are_kept() -> None:
    whitening = Whitening(WIDTH, 4)
    whitening.fit(rows := still(64, rounding=1e-3), "layer:0")
    spread = whitening(rows, "layer:0").std(dim=0)
    assert torch.allclose(spread, torch.ones(4), atol=1e-2)


# --- whole jobs -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def reach(datasets: Path) -> DatasetBinding:
    """Demonstrations of reach without a camera."""
    asked = ["--env", REACH, "--episodes", "40", "--cameras", "none", "--out", str(datasets / "reach")]
    assert record(asked) == 0
    return bind(datasets, datasets / "reach")


def submit(binding: DatasetBinding, head: dict[str, Any], **training: Any) -> SubmitJob:
    return submit_message(binding, head=head, job_id=head["type"], **training)


def test_a_recording_without_cameras_is_a_valid_dataset(reach: DatasetBinding, datasets: Path) -> None:
    schema = reach.summary.schema_
    assert schema.cameras == ()
    assert (schema.state is not None, schema.action.dim, reach.summary.episodes) == (True, 2, 40)
    again = LeRobotDataset.open(datasets / "reach", declared_from(schema).model_dump(mode="json"))
    assert again.schema.signature == schema.signature


async def test_every_head_learns_from_the_state_alone_and_exports_what_it_does(
    tmp_path: Path, datasets: Path, reach: DatasetBinding
) -> None:
    submits = [submit(reach, head, steps=80, batch_size=32) for head in HEADS.values()]
    async with running(make_config(tmp_path, datasets)) as runtime:
        for message in submits:
            await runtime.master.submit(message)
        for message in submits:
            status = await ended(runtime, message)
            assert status.state is WorkloadState.SUCCEEDED, status
        adapters = {message.job_id: tmp_path / "artifacts" / f"{message.job_id}-1-v80" for message in submits}
        losses = {message.job_id: metric(events_of(runtime, message.job_id), "train/loss") for message in submits}
    for name, folder in adapters.items():
        course = [value for _, value in losses[name]]
        assert np.mean(course[-10:]) < 0.95 * np.mean(course[:10]), name
        manifest = json.loads((folder / "manifest.json").read_text())
        assert (manifest["prefix"]["views"], manifest["state"]["dim"]) == ([], 4)
        report = act(folder, datasets / "reach", 0)
        assert report["max_difference"] <= TOLERANCE
        for row in report["actions"]:  # they depend on the state, so frames differ
            assert np.isfinite(row).all()
        assert np.ptp(report["actions"], axis=0).max() > 1e-3, name


async def test_a_policy_without_cameras_trains_the_same_beside_one_that_sees(
    tmp_path: Path, datasets: Path, reach: DatasetBinding
) -> None:
    seeing = bind(datasets, make_dataset(datasets / "seen"))
    blind, other = submit(reach, HEADS["mlp"]), submit_message(seeing, job_id="seeing", tenant_id="b")
    losses: list[Any] = []
    for name, group in (("alone", [blind]), ("together", [blind, other])):
        async with running(make_config(tmp_path / name, datasets)) as runtime:
            for message in group:
                await runtime.master.submit(message)
            for message in group:
                assert (await ended(runtime, message)).state is WorkloadState.SUCCEEDED
            losses.append(metric(events_of(runtime, blind.job_id), "train/loss"))
    assert losses[0] == losses[1]


async def test_a_policy_without_cameras_solves_its_task_in_the_environment(
    tmp_path: Path, datasets: Path, reach: DatasetBinding, capsys: pytest.CaptureFixture[str]
) -> None:
    message = submit(reach, HEADS["mlp"] | {"width": 64}, steps=200, batch_size=64, evaluate_every=200)
    async with running(make_config(tmp_path, datasets)) as runtime:
        await runtime.master.submit(message)
        assert (await ended(runtime, message)).state is WorkloadState.SUCCEEDED
    asked = ["--adapter", str(tmp_path / "artifacts" / "mlp-1-v200"), "--env", REACH, "--episodes", "20"]
    capsys.readouterr()
    assert await asyncio.to_thread(evaluate, asked) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["success_once"]["successes"] >= 16
    assert result["protocol"]["cameras"] == []


@pytest.mark.parametrize(
    ("head", "use_state", "why"),
    [
        ({"type": "mlp"}, True, "head.tap 'vision' reads images; allowed without cameras: layer:n"),
        ({"type": "gr00t", "tap": "merged"}, True, "head.tap 'merged' reads images"),
        ({"type": "oft"}, True, "allowed: head.standardize false"),
        ({"type": "mlp", "tap": "layer:0"}, False, "allowed: use_state true"),
        ({"type": "mlp", "tap": "layer:0"}, True, None),
        ({"type": "oft", "standardize": False}, True, None),
        ({"type": "gr00t"}, True, None),
    ],
)
def test_what_needs_cameras_says_so_and_what_would_do_without(
    head: dict[str, Any], use_state: bool, why: str | None
) -> None:
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": "blind",
            "base_model": "tiny-qwen3-vl",
            "head": head,
            "dataset": {"id": "d", "cameras": [], "use_state": use_state},
            "training": {"steps": 1},
        }
    )
    found = why_it_needs_cameras(spec)
    assert (found is None) == (why is None)
    assert (why or "") in (found or "")


def test_a_head_that_keeps_the_token_grid_refuses_instructions_of_several_lengths(
    datasets: Path, tiny: Qwen3VLBackbone
) -> None:
    """Before anything is read; one instruction for all, or a head that reads prompts of any length, would do."""
    recorded = bind(datasets, make_dataset(datasets / "two-tasks"))
    assert len({tiny.tokens(VLAFeature(images=(), instruction=text)) for text in recorded.summary.tasks}) == 2

    def admit(head: dict[str, Any], **selection: Any) -> None:
        message = submit(recorded, head)
        chosen = message.spec.dataset.model_copy(update=selection)
        spec = message.spec.model_copy(update={"dataset": chosen})
        message = message.model_copy(update={"spec": spec})
        admit_sft(message, datasets=datasets, bases={tiny.info.name: tiny}, batch_bytes_max=10**8)

    with pytest.raises(
        InvalidSubmit, match=r"tap 'layer:0'.*2 instructions make \d+ to \d+ tokens; allowed"
    ) as refused:
        admit(HEADS["mlp"])
    assert refused.value.body.field == "spec.head.tap"
    admit(HEADS["mlp"], instruction="push the square")
    admit(HEADS["gr00t"])
