"""Jobs that start from a policy: reinforcement learning, evaluation, and collecting rollouts as a dataset."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpu_runtime.protocol.algorithms import AlgorithmSpec, ReinforceSpec, group_size_of
from gpu_runtime.protocol.base import Message, shown
from gpu_runtime.protocol.environment_spec import EnvironmentSpec, RewardSpec
from gpu_runtime.protocol.exploration import ActorCriticSpec, ExplorationSpec, ValueSpec
from gpu_runtime.protocol.ordering import OrderedSpec
from gpu_runtime.protocol.specs import OptimizerSpec

SEED_MAX = 2**31 - 1
EPISODES_MAX = 20_000  # of one evaluation: more than every LIBERO task 150 times; one report has to hold them
VIDEOS_MAX = 1_000  # of one evaluation and outcome
UNEXPLORED_MAX = 64  # names
Seed = Annotated[int, Field(ge=0, le=SEED_MAX)]
Executed = Annotated[
    int,
    Field(
        ge=1,
        le=64,
        description="Actions executed of each chunk before the next decision.",
        json_schema_extra=shown(label="Executed of a chunk", unit="actions"),
    ),
]
Parallel = Annotated[
    int,
    Field(
        ge=1,
        le=64,
        description="Episodes side by side, one environment seat each.",
        json_schema_extra=shown(label="Side by side", unit="seats"),
    ),
]


class PolicySelection(Message):
    """A policy of yours. Base model, head, schema and statistics are those it was trained with."""

    artifact: Annotated[
        str,
        Field(
            min_length=1,
            max_length=100,
            description="Id of an adapter artifact of yours. Base, head and statistics are those it was trained with.",
            json_schema_extra=shown(label="Policy"),
        ),
    ]


Policy = Annotated[PolicySelection, Field(description="The policy of yours that it starts from.")]
Environment = Annotated[EnvironmentSpec, Field(description="The simulated task.")]


class CollectionSpec(Message):
    """How experience is gathered. One batch of episodes makes one policy version."""

    seats: Annotated[
        int,
        Field(
            ge=1,
            le=256,
            description="Environments side by side.",
            json_schema_extra=shown(label="Parallel environments", unit="seats"),
        ),
    ] = 4
    processes: Annotated[
        int | None, Field(ge=1, le=256, description="Processes that share the seats. Default: as fits.")
    ] = None
    episodes: Annotated[
        int,
        Field(
            ge=1,
            le=65_536,
            description="Episodes of one batch, that is of one policy version.",
            json_schema_extra=shown(label="Episodes of a batch", unit="episodes"),
        ),
    ] = 16
    max_staleness: Annotated[
        int,
        Field(
            ge=0,
            le=64,
            description="Updates that may come between acting and training. 0: strictly in turn.",
            json_schema_extra=shown(label="Staleness bound", unit="versions"),
        ),
    ] = 1
    reward: Annotated[RewardSpec, Field(description="What a step pays.")] = RewardSpec()

    @model_validator(mode="after")
    def _processes_have_seats(self) -> "CollectionSpec":
        if self.processes is not None and self.processes > self.seats:
            raise ValueError(f"processes {self.processes}: allowed: at most seats ({self.seats})")
        return self


class RlTrainingSpec(Message):
    """How long. It ends after ``iterations``, or when ``max_env_steps`` have been played, whichever comes first."""

    iterations: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000,
            description="Batches of episodes; each makes one policy version.",
            json_schema_extra=shown(unit="versions"),
        ),
    ]
    max_env_steps: Annotated[
        int | None,
        Field(
            ge=1,
            description="No further batch is begun after so many; with a step limit it bounds the cost.",
            json_schema_extra=shown(label="Environment steps, most", unit="steps"),
        ),
    ] = None
    epochs: Annotated[int, Field(ge=1, le=64, description="Passes over each batch; REINFORCE makes one.")] = 4
    minibatch_size: Annotated[
        int,
        Field(
            ge=1, le=65_536, description="Decisions (chunks) of one update.", json_schema_extra=shown(unit="chunks")
        ),
    ] = 64
    value_warmup: Annotated[
        int,
        Field(
            ge=0,
            le=1000,
            description="First iterations in which only the critic learns.",
            json_schema_extra=shown(label="Critic's warm-up", unit="versions"),
        ),
    ] = 0
    seed: Annotated[Seed, Field(description="Of starts, noise and minibatches.")] = 0
    checkpoint_every: Annotated[
        int,
        Field(
            ge=1,
            description="Iterations between checkpoints, from which a job is resumed and at which it stops.",
            json_schema_extra=shown(unit="versions"),
        ),
    ] = 1


class RlJobSpec(OrderedSpec):
    """Reinforcement learning of a policy in a simulated environment."""

    kind: Literal["rl"]
    policy: Policy
    environment: Environment
    algorithm: Annotated[AlgorithmSpec, Field(description="How experience becomes a better policy.")]
    exploration: Annotated[
        ExplorationSpec, Field(description="How the policy is made random; it has to fit the policy's head.")
    ]
    executed_steps: Executed
    unexplored: Annotated[
        tuple[str, ...],
        Field(
            max_length=UNEXPLORED_MAX,
            description="Action dimensions that are never random, by name, e.g. the gripper.",
        ),
    ] = ()
    collection: Annotated[
        CollectionSpec,
        Field(description="How experience is gathered. One batch of episodes makes one policy version."),
    ] = CollectionSpec()
    training: Annotated[RlTrainingSpec, Field(description="How long. What is reached first ends it.")]
    optimizer: Annotated[
        OptimizerSpec, Field(description="AdamW. In reinforcement learning with a constant learning rate by default.")
    ] = OptimizerSpec(lr=1e-4, schedule="constant", warmup_steps=0, weight_decay=0.0, grad_clip=0.5)

    @model_validator(mode="after")
    def _options_apply(self) -> "RlJobSpec":
        algorithm, group = self.algorithm, group_size_of(self.algorithm)
        if self.collection.episodes % group:
            raise ValueError(
                f"collection.episodes {self.collection.episodes}: "
                f"allowed: a multiple of algorithm.group_size ({group})"
            )
        if isinstance(algorithm, ReinforceSpec):
            if self.training.epochs != 1:
                raise ValueError(f"training.epochs {self.training.epochs}: allowed: 1, reinforce makes one pass")
            if self.collection.max_staleness:
                raise ValueError(
                    f"collection.max_staleness {self.collection.max_staleness}: allowed: 0, reinforce is on-policy"
                )
        if self.training.value_warmup and self.value is None:
            raise ValueError(f"training.value_warmup {self.training.value_warmup}: allowed: 0, there is no critic")
        if self.value is not None and self.value.per_step:
            raise ValueError("algorithm.value.per_step true: allowed: false, rewards are those of whole chunks")
        return self

    @property
    def value(self) -> ValueSpec | None:
        """The critic, of algorithms that have one."""
        return getattr(self.algorithm, "value", None)

    @property
    def actor_critic(self) -> ActorCriticSpec:
        """What is built around the policy."""
        return ActorCriticSpec(
            exploration=self.exploration,
            executed_steps=self.executed_steps,
            unexplored=self.unexplored,
            value=self.value,
            reference=self.algorithm.reference_kl > 0,
        )

    @property
    def total_steps(self) -> int:
        return self.training.iterations


class EvaluationJobSpec(OrderedSpec):
    """Success of one policy over planned episodes, one seed each. Nothing is trained."""

    kind: Literal["evaluation"]
    policy: Policy
    environments: Annotated[
        tuple[EnvironmentSpec, ...],
        Field(
            min_length=1,
            max_length=200,
            description="Tasks, each played alike.",
            json_schema_extra=shown(label="Task"),
        ),
    ]
    episodes: Annotated[
        int, Field(ge=1, le=10_000, description="Planned for each task.", json_schema_extra=shown(unit="episodes"))
    ] = 50
    first_seed: Annotated[Seed, Field(description="Seeds count up from it.")] = 50_000
    executed_steps: Annotated[Executed | None, Field(description="Default: the policy's whole chunk.")] = None
    goes_on_after_success: Annotated[
        bool, Field(description="Episodes go on after success, to tell success once from success at the end.")
    ] = False
    exact: Annotated[
        bool, Field(description="ManiSkill worlds are built anew for every episode: slower, and equal bit for bit.")
    ] = False
    parallel: Parallel = 2
    videos_per_outcome: Annotated[
        int,
        Field(
            ge=0,
            le=20,
            description="Films of each task, so many of successes and so many of failures.",
            json_schema_extra=shown(unit="films"),
        ),
    ] = 2

    @model_validator(mode="after")
    def _seeds_and_tasks(self) -> "EvaluationJobSpec":
        if self.first_seed + self.episodes - 1 > SEED_MAX:
            raise ValueError(f"first_seed {self.first_seed}: allowed: at most {SEED_MAX - self.episodes + 1}")
        names = [environment.id for environment in self.environments]
        if len(set(names)) != len(names):
            raise ValueError(f"environments {names}: allowed: each once")
        _require_in_all("episodes", self.episodes, tasks=len(names), limit=EPISODES_MAX)
        _require_in_all("videos_per_outcome", self.videos_per_outcome, tasks=len(names), limit=VIDEOS_MAX)
        return self

    @property
    def total_steps(self) -> int:
        """Planned episodes."""
        return self.episodes * len(self.environments)


def _require_in_all(name: str, each: int, *, tasks: int, limit: int) -> None:
    if each * tasks > limit:
        raise ValueError(f"{name} {each}: allowed: at most {limit // tasks} for each of {tasks} tasks, {limit} in all")


class RolloutJobSpec(OrderedSpec):
    """A policy's own episodes as a LeRobot v3.0 dataset of yours, ready to be trained on."""

    kind: Literal["rollout"]
    policy: Policy
    environment: Environment
    dataset_name: Annotated[str, Field(min_length=1, max_length=200, description="Name of the dataset that is made.")]
    episodes: Annotated[
        int, Field(ge=1, le=100_000, description="Episodes to be kept.", json_schema_extra=shown(unit="episodes"))
    ]
    only_successes: Annotated[bool, Field(description="Episodes that fail are played, paid and not kept.")] = False
    max_attempts: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000_000,
            description="Episodes played at most. Default: 4 x episodes where only successes are kept.",
            json_schema_extra=shown(unit="episodes"),
        ),
    ] = None
    first_seed: Annotated[Seed, Field(description="Seeds count up from it.")] = 1_000_000
    executed_steps: Annotated[Executed | None, Field(description="Default: the policy's whole chunk.")] = None
    parallel: Parallel = 2

    @model_validator(mode="after")
    def _enough_attempts(self) -> "RolloutJobSpec":
        if self.max_attempts is not None and self.max_attempts < self.episodes:
            raise ValueError(f"max_attempts {self.max_attempts}: allowed: at least episodes ({self.episodes})")
        if self.first_seed + self.attempts - 1 > SEED_MAX:
            raise ValueError(f"first_seed {self.first_seed}: allowed: at most {SEED_MAX - self.attempts + 1}")
        return self

    @property
    def attempts(self) -> int:
        """Episodes that are played at most."""
        if self.max_attempts is not None:
            return self.max_attempts
        return 4 * self.episodes if self.only_successes else self.episodes

    @property
    def total_steps(self) -> int:
        """Episodes to be kept."""
        return self.episodes
