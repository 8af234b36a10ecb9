"""The order of a job's work: the same whether it was interrupted or not."""

from gpu_runtime.protocol.specs import TrainingSpec
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.workflows.plan import EVALUATION_FRAMES_MAX, SftPlan


def plan(**changes: int) -> SftPlan:
    training = TrainingSpec(**{"steps": 6, "batch_size": 4, "evaluate_every": 3, "checkpoint_every": 2} | changes)
    return SftPlan.of(training, lengths=(10,) * 5, fit_frames=7)


def test_a_resumed_plan_is_the_rest_of_the_whole_plan() -> None:
    whole = [work.name for work in plan().works(start_step=0, needs_fit=True)]
    assert whole[:4] == ["fit/0", "train/1", "train/2", "train/3"]
    assert whole[4:7] == ["evaluate/3/0", "evaluate/3/1", "evaluate/3/2"]
    for step in range(1, 7):
        rest = [work.name for work in plan().works(start_step=step, needs_fit=False)]
        assert rest == whole[whole.index(f"train/{step}") + 1 :]


def test_the_last_step_is_evaluated_whatever_the_interval() -> None:
    works = list(plan(evaluate_every=100).works(start_step=0, needs_fit=False))
    assert [work.step for work in works if work.purpose is Purpose.EVALUATE] == [6, 6, 6]


def test_evaluation_sees_held_out_frames_only_each_once_and_not_too_many() -> None:
    big = SftPlan.of(TrainingSpec(steps=1, holdout_fraction=0.5), lengths=(100,) * 8, fit_frames=7)
    works = [work for work in big.works(start_step=0, needs_fit=False) if work.purpose is Purpose.EVALUATE]
    frames = [frame for work in works for frame in big.frames(work)]
    assert len(frames) == len(set(frames)) == EVALUATION_FRAMES_MAX
    assert {frame.episode for frame in frames} == set(big.split.holdout)


def test_a_job_without_held_out_episodes_is_trained_and_not_evaluated() -> None:
    works = list(plan(holdout_fraction=0).works(start_step=0, needs_fit=False))
    assert [work.name for work in works] == [f"train/{step}" for step in range(1, 7)]
