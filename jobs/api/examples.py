"""What the API's description shows of submitting: specifications of every kind, and the codes of refused fields."""

from typing import Any

from drf_spectacular.utils import OpenApiExample

_POLICY = {"artifact": "0b2f6a0e-5d3c-4a53-9d0e-2f6f3a1c9b11"}

SPECIFICATIONS: dict[str, dict[str, Any]] = {
    "sft": {
        "kind": "sft",
        "name": "push, first try",
        "base_model": "tiny-qwen3-vl",
        "head": {"type": "mlp", "horizon": 4},
        "dataset": {"id": "6c1d2f9a-8a0b-4f7e-9a51-3f0f5a7d2c10"},
        "training": {"steps": 500},
    },
    "rl": {
        "kind": "rl",
        "name": "push, improved",
        "policy": _POLICY,
        "environment": {"id": "PushCube-v1", "state": "privileged"},
        "algorithm": {"type": "ppo"},
        "exploration": {"type": "gaussian"},
        "executed_steps": 4,
        "collection": {"seats": 8, "episodes": 24},
        "training": {"iterations": 40},
    },
    "evaluation": {
        "kind": "evaluation",
        "name": "push, 50 fresh seeds",
        "policy": _POLICY,
        "environments": [{"id": "PushCube-v1"}],
        "episodes": 50,
        "videos_per_outcome": 2,
    },
    "rollout": {
        "kind": "rollout",
        "name": "more pushes",
        "policy": _POLICY,
        "environment": {"id": "PushCube-v1"},
        "dataset_name": "pushed by the policy",
        "episodes": 100,
        "only_successes": True,
    },
}

LORA_SPECIFICATION: dict[str, Any] = {
    "kind": "sft",
    "name": "push, base adapted",
    "base_model": "tiny-qwen3-vl",
    "head": {"type": "gr00t", "tap": "layer:-1"},
    "lora": {"rank": 8, "alpha": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "dataset": {"id": "6c1d2f9a-8a0b-4f7e-9a51-3f0f5a7d2c10"},
    "training": {"steps": 500},
}

_TITLES = {
    "sft": "Fine-tuning on demonstrations",
    "rl": "Reinforcement learning of a policy",
    "evaluation": "Success of a policy",
    "rollout": "A policy's episodes as a dataset",
}

EXAMPLES = [
    OpenApiExample(kind, summary=_TITLES[kind], value=value, request_only=True)
    for kind, value in SPECIFICATIONS.items()
]
EXAMPLES.insert(
    1,
    OpenApiExample(
        "sft-lora", summary="Fine-tuning with LoRA on the base", value=LORA_SPECIFICATION, request_only=True
    ),
)

# Codes of `errors[]` that a specification in the right form can be refused with.
FIELD_CODES: dict[str, str] = {
    "unknown_base_model": "no base model of that name is resident",
    "base_model_changed": "the policy was trained on another revision of its base model",
    "tap_out_of_range": "the base model has no such layer",
    "unknown_dataset": "no dataset version of yours has that id",
    "dataset_not_ready": "the dataset version is not validated yet, or was refused",
    "action_dim_mismatch": "the dataset's actions have another number of dimensions",
    "lora_without_effect": "the head reads the base before its text layers, where low-rank updates change nothing",
    "unknown_target_modules": "the base model's text has none of the modules that LoRA is to update",
    "rank_too_high": "the rank is larger than the smallest module that LoRA is to update",
    "no_state": "the dataset records no state",
    "no_camera": "the head needs a camera and none is chosen",
    "unknown_camera": "the dataset, or the policy, has no such camera",
    "repeated_camera": "a camera is named twice",
    "horizon_too_long": "no episode is as long as a chunk",
    "too_few_episodes": "one episode cannot be trained on and held out at once",
    "unknown_artifact": "no artifact of yours has that id",
    "artifact_deleted": "the artifact's bytes are gone",
    "artifact_not_adapter": "the artifact is no policy",
    "manifest_invalid": "the adapter is of another release",
    "camera_not_simulated": "the environment's name of a camera that the policy sees has to be given",
    "camera_repeated": "one camera of the environment would show two views",
    "horizon_too_short": "more steps are to be executed than a chunk has",
    "exploration_mismatch": "the policy's head cannot explore like that",
    "unknown_dimension": "the policy's actions have no dimension of that name",
    "repeated": "a name is given twice",
    "nothing_explored": "every action dimension is held fixed",
    "unknown_environment": "the runtime has no such simulator",
    "too_many_seats": "a tenant may not hold so many environments at once",
    "quota_exceeded": "more environment seats than your limit are asked for",
    "cost_unbounded": "by its specification the job may cost more than any hold; give `budget.max_cost`",
    "unknown_project": "no project of yours has that slug",
    "project_archived": "the project takes nothing new",
    "not_this_keys": "the API key is bound to another project",
}

SUBMIT_DESCRIPTION = (
    "Queue a job. 202: it is durable and starts when the runtime takes it.\n\n"
    "Limits on what runs at once never refuse: the job waits in line, and `queue` tells why and where. Refused are "
    "403 `tenant_paused`; 409 `quota_exceeded` (queued jobs, compute of the month); 402 `spend_limit_reached` (cap of "
    "the key, money of the month, hard budget) and `insufficient_credit`, with the limit and what is used of it. "
    "POST /jobs/estimate tells all of that beforehand.\n\n"
    "Refused with 422, `errors[]` names each field by JSON pointer. Beside the codes of a value that has the wrong "
    "form or range (`missing`, `extra_forbidden`, `less_than_equal`, …) there are:\n\n"
    + "\n".join(f"- `{code}`: {meaning}" for code, meaning in FIELD_CODES.items())
)
