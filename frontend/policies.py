"""Policies as pages show them: where they come from, and what their manifests say. What is missing is left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from frontend.facts import Fact, algorithm_word, kind_word, subject_of
from frontend.measured import Result
from jobs.models import Artifact, Job

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A policy in the list. ``result``: of its newest evaluation; ``heirs``: how many jobs start from it."""

    policy: Artifact
    trained: str
    subject: tuple[str, str]
    result: Result | None
    heirs: int


def trained_words(job: Job) -> str:
    """``SFT``, ``RL, PPO``."""
    algorithm = algorithm_word(job.spec)
    return f"{kind_word(job.kind)}, {algorithm}" if algorithm else kind_word(job.kind)


def row_of(policy: Artifact, *, result: Result | None, heirs: int) -> PolicyRow:
    return PolicyRow(
        policy=policy,
        trained=trained_words(policy.job),
        subject=subject_of(policy.job),
        result=result,
        heirs=heirs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One heading of what a manifest says."""

    title: str
    facts: tuple[Fact, ...]


def manifest_facts(policy: Artifact) -> tuple[Facts, ...]:
    """The manifest in words, by heading; a heading about which it says nothing is left out."""
    manifest: Manifest = policy.manifest
    told = (
        Facts(title="Action", facts=_facts(_action(_part(manifest, "action"), _part(manifest, "norm")))),
        Facts(title="State", facts=_facts(_state(_part(manifest, "state"), _part(manifest, "norm")))),
        Facts(title="Cameras", facts=_cameras(_part(manifest, "prefix"))),
        Facts(title="Base model", facts=_facts(_base(manifest))),
        Facts(title="Head", facts=_facts(_head(_part(manifest, "head")))),
        Facts(title="LoRA on the base", facts=_facts(_lora(lora_section(policy)))),
        Facts(title="Training", facts=_facts(_training(_part(manifest, "training")))),
    )
    return tuple(part for part in told if part.facts)


def lora_section(policy: Artifact) -> Manifest:
    """What its manifest says of its low-rank updates of the base; empty where it has none.

    Manifests of version 1.2 tell of them in the specification alone, without their size.
    """
    own = _part(policy.manifest, "lora")
    return own or _part(_part(policy.manifest, "spec"), "lora")


def policy_facts(policy: Artifact) -> tuple[Fact, ...]:
    """What it is, in a few lines."""
    job = policy.job
    subject, detail = subject_of(job)
    told = [
        Fact(label="Made by", text=f"J-{job.number} {job.name}", url=reverse("frontend:job", args=[job.pk])),
        Fact(label="Trained", text=trained_words(job)),
        Fact(label="Dataset" if job.dataset_version_id else "Environment", text=f"{subject}, {detail}"),
        Fact(label="Base model", text=job.base_model),
        Fact(label="Action head", text=job.head),
    ]
    if job.policy is not None:
        url = reverse("frontend:policy", args=[job.policy.pk])
        text = f"{job.policy.job.name}, version {job.policy.policy_version}"
        told.insert(2, Fact(label="Starts from", text=text, url=url))
    return tuple(told)


def evaluate_options(policy: Artifact, evaluation: Job | None) -> str:
    """What ``gpu_runtime evaluate`` needs to know: where the policy learned, else where it was evaluated last."""
    own, judged = policy.job.spec.get("environment"), evaluation.spec.get("environments") if evaluation else None
    task = own or (judged[0] if judged else {})
    state = task.get("state", "proprioception")
    return f"--env {task.get('id', 'ENVIRONMENT')}" + (f" --state {state}" if state != "proprioception" else "")


def _part(manifest: Manifest, name: str) -> Manifest:
    part = manifest.get(name)
    return part if isinstance(part, Mapping) else {}


def _facts(pairs: Sequence[tuple[str, Any]]) -> tuple[Fact, ...]:
    return tuple(Fact(label=label, text=str(value)) for label, value in pairs if value not in (None, "", []))


def _names(part: Manifest, mask: Any) -> str:
    """Names in order; one that is not normalised is marked."""
    names = part.get("names")
    if not isinstance(names, Sequence) or isinstance(names, str):
        return ""
    used = mask if isinstance(mask, Sequence) and len(mask) == len(names) else [True] * len(names)
    return ", ".join(str(name) if on else f"{name} (not normalised)" for name, on in zip(names, used, strict=True))


def _action(action: Manifest, norm: Manifest) -> list[tuple[str, Any]]:
    gripper = _part(action, "gripper")
    hz = action.get("control_hz")
    return [
        ("Dimensions", _names(action, norm.get("action_mask"))),
        ("Representation", action.get("representation")),
        ("Gripper", gripper.get("convention")),
        ("Actions in a chunk", action.get("horizon")),
        ("Control rate", f"{hz:g}\u00a0Hz" if isinstance(hz, int | float) else None),
        ("Normalised by", norm.get("action_mode")),
    ]


def _state(state: Manifest, norm: Manifest) -> list[tuple[str, Any]]:
    names = _names(state, norm.get("state_mask"))
    return [("Dimensions", names), ("Normalised by", norm.get("state_mode") if names else None)]


def _cameras(prefix: Manifest) -> tuple[Fact, ...]:
    views = prefix.get("views")
    told = []
    for view in views if isinstance(views, list) else ():
        if not isinstance(view, Mapping):
            continue
        size, turned = f"{view.get('height', '?')} × {view.get('width', '?')}\u00a0px", view.get("rotation_deg")
        told.append(Fact(label=str(view.get("key", "?")), text=f"{size}, rotated {turned}°" if turned else size))
    return tuple(told)


def _base(manifest: Manifest) -> list[tuple[str, Any]]:
    base = _part(manifest, "base_model")
    count = base.get("parameters")
    return [
        ("Name", base.get("name")),
        ("Revision", base.get("revision")),
        ("Parameters", f"{count:,}" if isinstance(count, int) else None),
        ("Precision", base.get("dtype")),
        ("Weights", "random, for tests" if base.get("random_weights") else None),
        ("Prefix signature", manifest.get("prefix_signature")),
    ]


def _head(head: Manifest) -> list[tuple[str, Any]]:
    count, config = head.get("param_count"), _part(head, "config")
    settings = ", ".join(f"{name} {value}" for name, value in config.items() if name not in {"type", "horizon"})
    return [
        ("Type", head.get("type")),
        ("Parameters", f"{count:,}" if isinstance(count, int) else None),
        ("Settings", settings),
    ]


def _lora(lora: Manifest) -> list[tuple[str, Any]]:
    alpha, count, targets = lora.get("alpha"), lora.get("param_count"), lora.get("target_modules")
    return [
        ("Rank", lora.get("rank")),
        ("Alpha", f"{alpha:g}" if isinstance(alpha, int | float) else None),
        ("Target modules", ", ".join(map(str, targets)) if isinstance(targets, list) else None),
        ("Parameters", f"{count:,}" if isinstance(count, int) else None),
        ("In the archive", f"{lora.get('folder', 'lora')}/, in PEFT's format" if lora else None),
    ]


def _training(training: Manifest) -> list[tuple[str, Any]]:
    steps, env_steps = training.get("steps"), training.get("env_steps")
    return [
        ("Steps", f"{steps:,}" if isinstance(steps, int) else None),
        ("Environment steps", f"{env_steps:,}" if isinstance(env_steps, int) else None),
        ("Seed", training.get("seed")),
        ("Dataset fingerprint", training.get("dataset_fingerprint")),
        ("Adapter it started from", training.get("parent")),
    ]
