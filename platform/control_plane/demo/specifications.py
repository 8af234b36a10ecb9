"""The jobs of a participant as the API takes them."""

from typing import Any

from control_plane.demo.scenario import BASE_MODEL, FRESH_SEED, Imitation, Participant, Reinforcement


def start(who: Participant, version_id: str) -> dict[str, Any]:
    """The job that makes the policy of "before"."""
    return _imitation(who, who.start, version_id, f"{_title(who)}: start") | {"tags": ["start"]}


def main(who: Participant, version_id: str, start_artifact: str) -> dict[str, Any]:
    """The job the demo is about: it begins with the start policy, or, where it imitates, anew."""
    if isinstance(who.main, Imitation):
        return _imitation(who, who.main, version_id, _title(who)) | {"tags": ["main"]}
    return _reinforcement(who, who.main, start_artifact) | {"tags": ["main"]}


def evaluation(who: Participant, artifact: str, when: str, *, videos: int) -> dict[str, Any]:
    """Success of one policy on the fixed fresh seeds; ``videos`` of each outcome."""
    return {
        "kind": "evaluation",
        "name": f"{_title(who)}: {when}",
        "policy": {"artifact": artifact},
        "environments": [_environment(who)],
        "episodes": who.episodes,
        "first_seed": FRESH_SEED,
        "executed_steps": who.executed_steps,
        "parallel": 2,
        "videos_per_outcome": videos,
        "tags": [when],
    }


def _title(who: Participant) -> str:
    return f"{who.demonstrations.task} {who.algorithm} {who.head_name}"


def _environment(who: Participant, other: str | None = None) -> dict[str, Any]:
    task = who.demonstrations
    return {"id": other or task.environment, "state": task.state, "max_steps": who.max_steps}


def _imitation(who: Participant, course: Imitation, version_id: str, name: str) -> dict[str, Any]:
    return {
        "kind": "sft",
        "name": name,
        "base_model": BASE_MODEL,
        "head": dict(who.head),
        "dataset": {"id": version_id, **who.selection},
        "training": dict(course.training),
        "optimizer": dict(course.optimizer),
    }


def _reinforcement(who: Participant, course: Reinforcement, start_artifact: str) -> dict[str, Any]:
    return {
        "kind": "rl",
        "name": _title(who),
        "policy": {"artifact": start_artifact},
        "environment": _environment(who, course.environment),
        "algorithm": dict(course.algorithm),
        "exploration": dict(course.exploration),
        "executed_steps": who.executed_steps,
        "unexplored": list(course.unexplored),
        "collection": dict(course.collection),
        "training": dict(course.training),
        "optimizer": dict(course.optimizer),
    }
