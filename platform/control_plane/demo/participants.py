"""The four tenants of the demo: two ways of reinforcement learning, a third environment, and imitation from pixels."""

from typing import Any

from control_plane.demo.scenario import Demonstrations, Imitation, Participant, Reinforcement

_MLP = {"type": "mlp", "horizon": 4}
_STATE_MLP = _MLP | {"tap": "layer:0"}  # reads the instruction's tokens: without cameras there are no image tokens
_STATE_FLOW = {
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
}
_STATE_ONLY = {"cameras": [], "image_size": 64}
_CAMERA = {"image_size": 64}

_SHORT = {"steps": 100, "batch_size": 128, "evaluate_every": 100, "checkpoint_every": 50, "holdout_fraction": 0.0}
_SHORT_FLOW = Imitation(training=_SHORT | {"steps": 25}, optimizer={"lr": 1e-3, "warmup_steps": 10})
_WEAK_START = Imitation(  # so slow that it stays weak: at 1e-3 the same demonstrations solve four starts of five
    training=_SHORT, optimizer={"lr": 4.5e-5, "warmup_steps": 50}
)
_ONE_STEP = Imitation(
    training={"steps": 1, "batch_size": 32, "evaluate_every": 1, "checkpoint_every": 1},
    optimizer={"lr": 1e-3, "warmup_steps": 1},
)
_CAMERA_COURSE = Imitation(
    training={"steps": 600, "batch_size": 64, "evaluate_every": 150, "checkpoint_every": 100},
    optimizer={"lr": 1e-3, "warmup_steps": 50},
)
# PushCube, within 19,000 steps: PPO 7 -> 18 of 50 at 3e-5, 6 -> 35 at 1e-4 (twice), GRPO 7 -> 29 (bench_policies)
_RL_OPTIMIZER = {"lr": 1e-4, "schedule": "constant", "warmup_steps": 0, "weight_decay": 0.0, "grad_clip": 0.5}

_GAUSSIAN = {"type": "gaussian", "log_std_init": -1.0}
_PROGRESS = {"dense": "difference", "success": 1.0, "per_chunk": -0.01}


def _ppo(
    *,
    iterations: int,
    reward: dict[str, Any],
    unexplored: tuple[str, ...] = (),
    exploration: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    environment: str | None = None,
    episodes: int = 24,
    **algorithm: Any,
) -> Reinforcement:
    """The critic is told how much time is left. ``algorithm``: options other than those that suit PushCube."""
    suited = {"gamma": 0.97, "gae_lambda": 0.95, "bootstrap": "never", "target_kl": 0.03}
    critic = {"hidden": [128, 128], "lr": 1e-3, "episode_progress": True}
    return Reinforcement(
        algorithm={"type": "ppo", "value": critic} | suited | algorithm,
        exploration=exploration or _GAUSSIAN,
        collection={"seats": 8, "processes": 2, "episodes": episodes, "reward": reward},
        training={"iterations": iterations, "epochs": 4, "minibatch_size": 64, "value_warmup": 1},
        optimizer=_RL_OPTIMIZER | (optimizer or {}),
        unexplored=unexplored,
        environment=environment,
    )


def _flow_ppo(*, iterations: int, environment: str | None = None) -> Reinforcement:
    """A flow head explores by its own noise; paid for nothing but coming nearer."""
    return _ppo(  # FetchReach, 22,000 steps: 17 -> 40 of 48; with noise 0.5 or GRPO it stayed where it was
        iterations=iterations,
        reward={"dense": "difference", "success": 0.0},
        exploration={"type": "flow_sde", "noise_level": 1.0},
        optimizer={"lr": 6e-4, "grad_clip": 1.0},
        environment=environment,
        episodes=32,
        gamma=0.9,
        bootstrap="standard",
        target_kl=0.06,
    )


def _grpo(*, iterations: int, dense: str, unexplored: tuple[str, ...] = ()) -> Reinforcement:
    """Groups of eight copies of a start; paid for success, for its haste, and as ``dense`` says."""
    return Reinforcement(
        algorithm={"type": "grpo", "group_size": 8, "target_kl": 0.03},
        exploration=_GAUSSIAN,
        collection={
            "seats": 8,
            "processes": 2,
            "episodes": 32,
            "reward": {"dense": dense, "success": 1.0, "early_success": 0.5},
        },
        training={"iterations": iterations, "epochs": 4, "minibatch_size": 64},
        optimizer=_RL_OPTIMIZER,
        unexplored=unexplored,
    )


def _people() -> list[dict[str, Any]]:
    return [{"tenant": f"Demo lab {name}", "email": f"lab-{name.lower()}@demo.invalid"} for name in "ABCD"]


def _maniskill() -> tuple[Participant, ...]:
    """PushCube twice by reinforcement learning, once from pixels; FetchReach in MuJoCo."""
    weak = Demonstrations(environment="PushCube-v1", cameras="none", episodes=4, state="privileged")
    push: dict[str, Any] = {"executed_steps": 4, "max_steps": 48, "must_improve": True}
    state_only: dict[str, Any] = {"selection": _STATE_ONLY, "head": _STATE_MLP, "start": _WEAK_START}
    a, b, c, d = _people()
    return (
        Participant(
            **(a | push | state_only),
            demonstrations=weak,
            main=_ppo(iterations=18, reward=_PROGRESS, unexplored=("gripper",)),
        ),
        Participant(
            **(b | push | state_only),
            demonstrations=weak,
            main=_grpo(iterations=14, unexplored=("gripper",), dense="difference"),
        ),
        Participant(
            **c,
            demonstrations=Demonstrations(
                environment="gymnasium/FetchReach-v4", cameras="none", episodes=24, state="privileged"
            ),
            selection=_STATE_ONLY,
            head=_STATE_FLOW,
            start=_SHORT_FLOW,
            main=_flow_ppo(iterations=16, environment="gymnasium/FetchReachDense-v4"),
            executed_steps=4,
            max_steps=48,
            must_improve=False,
        ),
        Participant(
            **(d | push),
            demonstrations=Demonstrations(environment="PushCube-v1", cameras="base", episodes=100, seed=1000),
            selection=_CAMERA,
            head=_MLP,
            start=_ONE_STEP,
            main=_CAMERA_COURSE,
            videos_before=1,
        ),
    )


def _pure_python() -> tuple[Participant, ...]:
    """The same four jobs where no simulator of robots can run: points that reach, a disc that pushes a block."""
    weak = Demonstrations(environment="joynexus/Reach-v0", cameras="none", episodes=8)
    reach: dict[str, Any] = {
        "demonstrations": weak,
        "selection": _STATE_ONLY,
        "start": _WEAK_START,
        "executed_steps": 4,
        "max_steps": 20,
        "must_improve": True,
    }
    a, b, c, d = _people()
    return (
        Participant(**(a | reach), head=_STATE_MLP, main=_ppo(iterations=30, reward={"dense": "raw", "success": 0.0})),
        Participant(**(b | reach), head=_STATE_MLP, main=_grpo(iterations=30, dense="raw")),
        Participant(
            **(c | reach | {"start": _SHORT_FLOW, "must_improve": False}),
            head=_STATE_FLOW,
            main=_flow_ppo(iterations=20),
        ),
        Participant(
            **d,
            demonstrations=Demonstrations(environment="gym_pusht/PushT-v0", cameras="top", episodes=60, seed=1000),
            selection=_CAMERA,
            head=_MLP,
            start=_ONE_STEP,
            main=_CAMERA_COURSE,
            videos_before=1,
            executed_steps=4,
            max_steps=200,
            must_improve=False,
            episodes=20,
        ),
    )


MANISKILL = _maniskill()
PURE_PYTHON = _pure_python()
