"""What a job is about, in the words of its kind: algorithm, environment, data, what it started from."""

from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from jobs.models import Artifact, Job

KIND_WORDS = {"sft": "SFT", "rl": "RL", "evaluation": "Evaluation", "rollout": "Rollouts"}
STEP_WORDS = {"sft": "steps", "rl": "versions", "evaluation": "episodes", "rollout": "kept episodes"}
ALGORITHM_WORDS = {"ppo": "PPO", "decoupled_ppo": "Decoupled PPO", "grpo": "GRPO", "reinforce": "REINFORCE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """``url`` where the text leads somewhere."""

    label: str
    text: str
    url: str = ""


def kind_word(kind: str) -> str:
    return KIND_WORDS.get(kind, kind)


def step_word(kind: str) -> str:
    """What the steps of a kind count."""
    return STEP_WORDS.get(kind, "steps")


def algorithm_word(spec: dict[str, Any]) -> str:
    """Empty for kinds that have none."""
    name = (spec.get("algorithm") or {}).get("type", "")
    return ALGORITHM_WORDS.get(name, name)


def subject_of(job: Job) -> tuple[str, str]:
    """(what the job reads or plays, a detail): its dataset version, or its environments."""
    spec = job.spec
    if job.dataset_version is not None:
        return job.dataset_version.dataset.name, f"version {job.dataset_version.number}"
    if "environments" in spec:
        tasks = spec["environments"]
        more = f", {tasks[1]['id']}" if len(tasks) == 2 else f" and {len(tasks) - 1} more" if len(tasks) > 2 else ""
        return f"{tasks[0]['id']}{more}", f"{spec['episodes']} episodes each"
    detail = f"{spec['collection']['seats']} seats" if job.kind == "rl" else f"to {spec['dataset_name']}"
    return spec["environment"]["id"], detail


def origin_fact(policy: Artifact) -> Fact:
    """The policy a job started from, as a link to the job that made it."""
    url = reverse("frontend:job", args=[policy.job_id])
    return Fact(label="Starts from", text=f"{policy.job.name}, version {policy.policy_version}", url=url)


def job_facts(job: Job) -> tuple[Fact, ...]:
    """The settings worth a line each; the whole specification is one click further."""
    told = [origin_fact(job.policy)] if job.policy else []
    told += _BY_KIND[job.kind](job.spec) if job.kind in _BY_KIND else []
    if job.dataset_version is not None:
        name, detail = subject_of(job)
        told.append(Fact(label="Dataset", text=f"{name}, {detail}"))
    told.append(Fact(label="Base model", text=job.base_model))
    told.append(Fact(label="Action head", text=job.head))
    told += [Fact(label="Project", text=job.project.name), Fact(label="Priority", text=str(job.priority))]
    budget = job.spec.get("budget") or {}
    if budget.get("max_cost") is not None:
        told.append(Fact(label="Costs at most", text=f"{budget['max_cost']} {job.tenant.currency}"))
    if budget.get("max_compute_s") is not None:
        told.append(Fact(label="Computes at most", text=f"{budget['max_compute_s']} s"))
    return tuple(told)


def _sft(spec: dict[str, Any]) -> list[Fact]:
    lora = spec.get("lora")
    return [
        Fact(label="Actions in a chunk", text=str(spec["head"]["horizon"])),
        *([Fact(label="LoRA on the base", text=f"rank {lora['rank']}, alpha {lora['alpha']:g}")] if lora else []),
        Fact(label="Batch size", text=str(spec["training"]["batch_size"])),
        Fact(label="Seed", text=str(spec["training"]["seed"])),
    ]


def _environment(spec: dict[str, Any]) -> list[Fact]:
    limit = spec.get("max_steps")
    return [
        Fact(label="Environment", text=spec["id"]),
        Fact(label="State vector", text=spec["state"]),
        Fact(label="Step limit", text=str(limit) if limit else "the task's own"),
    ]


def _rl(spec: dict[str, Any]) -> list[Fact]:
    collection, training = spec["collection"], spec["training"]
    return [
        Fact(label="Algorithm", text=algorithm_word(spec)),
        *_environment(spec["environment"]),
        Fact(label="Executed of a chunk", text=str(spec["executed_steps"])),
        Fact(label="Batch", text=f"{collection['episodes']} episodes in {collection['seats']} seats"),
        Fact(label="Staleness bound", text=f"{collection['max_staleness']} versions"),
        Fact(label="Epochs", text=f"{training['epochs']}, minibatches of {training['minibatch_size']}"),
        Fact(label="Learning rate", text=str(spec["optimizer"]["lr"])),
        Fact(label="Seed", text=str(training["seed"])),
    ]


def _evaluation(spec: dict[str, Any]) -> list[Fact]:
    tasks, last = spec["environments"], spec["first_seed"] + spec["episodes"] - 1
    told = _environment(tasks[0]) if len(tasks) == 1 else [Fact(label="Environments", text=f"{len(tasks)} tasks")]
    return [
        *told,
        Fact(label="Episodes", text=f"{spec['episodes']} each"),
        Fact(label="Seeds", text=f"{spec['first_seed']}–{last}"),
        Fact(label="Executed of a chunk", text=str(spec["executed_steps"] or "all of it")),
        Fact(label="Side by side", text=str(spec["parallel"])),
    ]


def _rollout(spec: dict[str, Any]) -> list[Fact]:
    return [
        *_environment(spec["environment"]),
        Fact(label="Episodes", text=f"{spec['episodes']}, {'successes only' if spec['only_successes'] else 'all'}"),
        Fact(label="Becomes dataset", text=spec["dataset_name"]),
        Fact(label="First seed", text=str(spec["first_seed"])),
    ]


_BY_KIND = {"sft": _sft, "rl": _rl, "evaluation": _evaluation, "rollout": _rollout}
