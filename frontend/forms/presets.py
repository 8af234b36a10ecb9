"""Settings to start from: those under which learning was measured to work on this platform, whatever the data."""

from dataclasses import dataclass
from typing import Any

from frontend.forms.nodes import leaves
from frontend.forms.posted import Texts, texts_of
from frontend.forms.schema import job_form


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """``spec``: the part of a specification that it sets."""

    key: str
    title: str
    help: str
    spec: dict[str, Any]


_RL_OPTIMIZER = {"lr": 1e-4, "schedule": "constant", "warmup_steps": 0, "weight_decay": 0.0, "grad_clip": 0.5}
PRESETS: dict[str, tuple[Preset, ...]] = {
    "sft": (
        Preset(
            key="camera-mlp",
            title="Cameras, MLP head",
            help="Regression on image tokens. About a minute of device time; pushes a cube from 64-pixel images.",
            spec={
                "head": {"type": "mlp", "horizon": 4, "tap": "vision"},
                "dataset": {"image_size": 64},
                "training": {"steps": 600, "batch_size": 64, "evaluate_every": 150, "checkpoint_every": 100},
                "optimizer": {"lr": 1e-3, "warmup_steps": 50},
            },
        ),
        Preset(
            key="state-mlp",
            title="State only, MLP head",
            help="No camera: the policy acts on its state vector. A quick start for reinforcement learning.",
            spec={
                "head": {"type": "mlp", "horizon": 4, "tap": "layer:0"},
                "dataset": {"image_size": 64, "cameras": []},
                "training": {"steps": 400, "batch_size": 128, "evaluate_every": 100, "checkpoint_every": 100},
                "optimizer": {"lr": 1e-3, "warmup_steps": 50},
            },
        ),
        Preset(
            key="small-flow",
            title="State only, small GR00T head",
            help="Flow matching with a small transformer; it explores by its own noise in reinforcement learning.",
            spec={
                "head": {
                    "type": "gr00t",
                    "horizon": 4,
                    "tap": "layer:0",
                    "width": 64,
                    "layers": 2,
                    "heads": 2,
                    "output_width": 64,
                    "future_tokens": 2,
                    "noise_draws": 4,
                    "dropout": 0.0,
                },
                "dataset": {"image_size": 64, "cameras": []},
                "training": {"steps": 100, "batch_size": 128, "evaluate_every": 100, "checkpoint_every": 50},
                "optimizer": {"lr": 1e-3, "warmup_steps": 10},
            },
        ),
    ),
    "rl": (
        Preset(
            key="ppo",
            title="PPO, regression head",
            help="PushCube: from 6 to 35 of 50 within 19,000 environment steps.",
            spec={
                "algorithm": {
                    "type": "ppo",
                    "gamma": 0.97,
                    "gae_lambda": 0.95,
                    "bootstrap": "never",
                    "target_kl": 0.03,
                    "value": {"hidden": [128, 128], "lr": 1e-3, "episode_progress": True},
                },
                "exploration": {"type": "gaussian", "log_std_init": -1.0},
                "executed_steps": 4,
                "collection": {
                    "seats": 8,
                    "processes": 2,
                    "episodes": 24,
                    "reward": {"dense": "difference", "success": 1.0, "per_chunk": -0.01},
                },
                "training": {"iterations": 18, "epochs": 4, "minibatch_size": 64, "value_warmup": 1},
                "optimizer": _RL_OPTIMIZER,
            },
        ),
        Preset(
            key="grpo",
            title="GRPO, regression head",
            help="PushCube: from 7 to 29 of 50 within 19,000 environment steps; no critic.",
            spec={
                "algorithm": {"type": "grpo", "group_size": 8, "target_kl": 0.03},
                "exploration": {"type": "gaussian", "log_std_init": -1.0},
                "executed_steps": 4,
                "collection": {
                    "seats": 8,
                    "processes": 2,
                    "episodes": 32,
                    "reward": {"dense": "difference", "success": 1.0, "early_success": 0.5},
                },
                "training": {"iterations": 14, "epochs": 4, "minibatch_size": 64},
                "optimizer": _RL_OPTIMIZER,
            },
        ),
        Preset(
            key="flow-ppo",
            title="PPO, flow head",
            help="FetchReach: from 17 to 40 of 48 within 22,000 environment steps.",
            spec={
                "algorithm": {
                    "type": "ppo",
                    "gamma": 0.9,
                    "gae_lambda": 0.95,
                    "bootstrap": "standard",
                    "target_kl": 0.06,
                    "value": {"hidden": [128, 128], "lr": 1e-3, "episode_progress": True},
                },
                "exploration": {"type": "flow_sde", "noise_level": 1.0},
                "executed_steps": 4,
                "collection": {
                    "seats": 8,
                    "processes": 2,
                    "episodes": 32,
                    "reward": {"dense": "difference", "success": 0.0},
                },
                "training": {"iterations": 16, "epochs": 4, "minibatch_size": 64, "value_warmup": 1},
                "optimizer": _RL_OPTIMIZER | {"lr": 6e-4, "grad_clip": 1.0},
            },
        ),
    ),
    "evaluation": (
        Preset(
            key="fifty",
            title="50 fresh seeds",
            help="Seeds that no job trains on; success within about 14 percentage points (95 %).",
            spec={"episodes": 50, "first_seed": 50_000, "videos_per_outcome": 2},
        ),
    ),
    "rollout": (
        Preset(
            key="successes",
            title="Successes only",
            help="100 episodes that succeed, at most 400 played; ready for fine-tuning.",
            spec={"episodes": 100, "only_successes": True, "max_attempts": 400},
        ),
    ),
}


def preset_texts(kind: str, key: str) -> Texts:
    """What the preset types into the form, an empty text where it has nothing; nothing if there is no such one."""
    chosen = next((preset for preset in PRESETS.get(kind, ()) if preset.key == key), None)
    if chosen is None:
        return {}
    return _cleared(kind, chosen) | _typed(kind, chosen)


def _cleared(kind: str, chosen: Preset) -> Texts:
    """Fields that would not be this preset's: what a preset of the kind before it set, and the rest of its choices."""
    others = {name for preset in PRESETS[kind] for name in _typed(kind, preset)}
    choices = {name for name, value in chosen.spec.items() if isinstance(value, dict) and "type" in value}
    below = {leaf.name for leaf in leaves(job_form().options[kind]) if leaf.name.partition(".")[0] in choices}
    return dict.fromkeys((others | below) - {"kind"}, "")


def _typed(kind: str, preset: Preset) -> Texts:
    return texts_of(job_form(), {"kind": kind} | preset.spec)
