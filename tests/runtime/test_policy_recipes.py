"""The benchmark's recipes are jobs that a tenant could submit; the benchmark itself runs for minutes, elsewhere."""

import pytest

from gpu_runtime.data.validation.report import validate_dataset
from gpu_runtime.environments.record import main as record
from gpu_runtime.protocol.messages import DatasetBinding, PolicyBinding
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.protocol.state_only import why_it_needs_cameras
from tests.benchmarks.policy_recipes import ENV_STEPS_MAX, RECIPES, RL_RECIPES
from tests.benchmarks.policy_runs import rl_job, sft_job
from tests.support.environments import REACH


@pytest.fixture(scope="module")
def binding(tmp_path_factory: pytest.TempPathFactory) -> DatasetBinding:
    """Any dataset: only its name goes into a specification."""
    path = tmp_path_factory.mktemp("data") / "reach"
    assert record(["--env", REACH, "--episodes", "2", "--cameras", "none", "--out", str(path)]) == 0
    summary = validate_dataset(path).summary
    assert summary is not None
    return DatasetBinding(version_id="version", storage_key="reach", summary=summary)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_of_imitation_is_a_job(name: str, binding: DatasetBinding) -> None:
    recipe = RECIPES[name]
    spec = sft_job(name, recipe, binding, seed=3).spec
    assert isinstance(spec, SftJobSpec)
    assert (spec.training.seed, spec.total_steps) == (3, recipe.training["steps"])
    assert recipe.executed_steps <= spec.head.horizon
    blind = spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"cameras": ()})})
    assert (why_it_needs_cameras(blind) is None) == (recipe.cameras == "none")


@pytest.mark.parametrize("name", sorted(RL_RECIPES))
def test_a_recipe_of_reinforcement_is_a_job_that_ends_within_its_steps(name: str) -> None:
    recipe = RL_RECIPES[name]
    start = PolicyBinding(artifact_id="start", sha256="0" * 64, base_model="tiny-qwen3-vl")
    spec = rl_job(name, recipe, start, seed=3).spec
    assert isinstance(spec, RlJobSpec)
    assert recipe.start in RECIPES
    assert spec.training.max_env_steps is not None
    assert spec.environment.max_steps is not None
    last_batch = spec.collection.episodes * spec.environment.max_steps
    assert spec.training.max_env_steps + last_batch <= ENV_STEPS_MAX
