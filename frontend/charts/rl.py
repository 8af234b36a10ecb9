"""Charts of reinforcement learning: what was played, what was learned, what the shared services did."""

from annotated_types import Le

from frontend.charts.model import Board, Chart, Curve, Group, Limit, Needs
from frontend.charts.services import PREDICTED, TRAINED, device_share, group_size, predict_latency
from gpu_runtime.protocol.policy_specs import CollectionSpec

AGES_SINGLY = 8  # versions behind that have a curve of their own; older decisions share one
_RULES = CollectionSpec.model_fields["max_staleness"].metadata
_BOUND = max(int(str(rule.le)) for rule in _RULES if isinstance(rule, Le))  # that a specification may allow
_OLDER = tuple(f"rollout/staleness/{age}" for age in range(AGES_SINGLY + 1, _BOUND + 1))

_PLAYED = Group(
    title="Rollouts",
    charts=(
        Chart(
            id="return",
            title="Return",
            unit="mean of the batch, the environment's reward",
            curves=(Curve(series="rollout/return", label="return", color=1),),
            note="Sum of the environment's own rewards over an episode.",
        ),
        Chart(
            id="success",
            title="Success",
            unit="% of the batch's episodes",
            curves=(
                Curve(series="rollout/success_once", label="once", color=5, episodes="rollout/episodes"),
                Curve(series="rollout/success_at_end", label="at end", color=1),
            ),
            smooth=False,
            percent=True,
            scale=100.0,
            note="With exploration, so lower than an evaluation. Band: Wilson 95 % of success once.",
        ),
        Chart(
            id="shaped",
            title="Shaped return",
            unit="mean of the batch",
            curves=(Curve(series="rollout/shaped_return", label="shaped", color=1),),
            note="What is trained on: the rewards of collection.reward.",
        ),
        Chart(
            id="length",
            title="Episode length",
            unit="steps",
            curves=(Curve(series="rollout/episode_steps", label="steps", color=3),),
            note="Mean over the batch; shorter usually means solved sooner.",
        ),
        Chart(
            id="starts",
            title="Different starts",
            unit="of the batch",
            curves=(
                Curve(series="rollout/distinct_starts", label="different", color=3),
                Curve(series="rollout/solved_at_reset", label="solved at reset", color=2, dotted=True),
            ),
            smooth=False,
            note="Initial states; an episode solved at reset shows nothing about the policy.",
        ),
        Chart(
            id="stale",
            title="Staleness",
            unit="versions behind",
            curves=(
                Curve(series="rollout/staleness_max", label="max", color=2, dotted=True),
                Curve(series="rollout/staleness_mean", label="mean", color=1),
            ),
            smooth=False,
            limit=Limit(path="collection.max_staleness", label="bound"),
            note="Updates between acting and training, per decision.",
        ),
        Chart(
            id="ages",
            title="Decisions by staleness",
            unit="of the batch",
            curves=(
                *(
                    Curve(series=f"rollout/staleness/{age}", label=f"{age} behind", color=age + 1, least=age)
                    for age in range(AGES_SINGLY + 1)
                ),
                Curve(series=_OLDER[0], more=_OLDER[1:], label="older", color=10, dotted=True, least=AGES_SINGLY + 1),
            ),
            smooth=False,
            reach="collection.max_staleness",
            note="How many decisions of each batch were that many versions old.",
        ),
        Chart(
            id="dropped",
            title="Dropped",
            unit="so far",
            curves=(
                Curve(series="rollout/dropped_stale", label="stale", color=4),
                Curve(series="rollout/dropped_lost", label="lost", color=8),
            ),
            smooth=False,
            note="Batches too old to train on, and rollouts whose environment was lost.",
        ),
    ),
)

_LEARNED = Group(
    title="Training",
    charts=(
        Chart(
            id="policy_loss",
            title="Policy loss",
            unit="mean of the update",
            curves=(Curve(series="train/policy_loss", label="policy", color=1),),
            note="Its size says little; watch return and KL.",
        ),
        Chart(
            id="kl",
            title="Approximate KL",
            unit="nats, k3",
            curves=(Curve(series="train/approx_kl", label="KL", color=1),),
            log=True,
            limit=Limit(path="algorithm.target_kl", label="target"),
            note="How far the update moved the policy. Above the target, the remaining epochs are skipped.",
        ),
        Chart(
            id="reference",
            title="KL to the start",
            unit="nats",
            curves=(Curve(series="train/reference_kl", label="to start", color=2),),
            log=True,
            needs=Needs.REFERENCE,
            note="How far the policy has moved from the one it started from; algorithm.reference_kl holds it.",
        ),
        Chart(
            id="clip",
            title="Clip fraction",
            unit="% of elements",
            curves=(
                Curve(series="train/clip_fraction", label="clipped", color=1),
                Curve(series="train/dual_clip_fraction", label="dual", color=2, dotted=True),
            ),
            scale=100.0,
            needs=Needs.RATIO,
            note="Ratios outside the clip range; they give no gradient.",
        ),
        Chart(
            id="entropy",
            title="Entropy",
            unit="nats",
            curves=(Curve(series="train/entropy", label="entropy", color=3),),
            note="How random the policy still is.",
        ),
        Chart(
            id="explained",
            title="Explained variance",
            unit="of the returns",
            curves=(Curve(series="train/explained_variance", label="critic", color=1),),
            needs=Needs.CRITIC,
            note="1: the critic knows them; 0: no better than their mean. From sums over the whole batch.",
        ),
        Chart(
            id="value_loss",
            title="Value loss",
            unit="mean of the update",
            curves=(Curve(series="train/value_loss", label="value", color=4),),
            log=True,
            needs=Needs.CRITIC,
            note="The critic's error on its returns.",
        ),
        Chart(
            id="gap",
            title="Log-probability gap",
            unit="nats, rollout against trainer",
            curves=(Curve(series="train/log_prob_gap", label="gap", color=2),),
            smooth=False,
            note="The same actions under the same weights, computed twice; grows with staleness only.",
        ),
        Chart(
            id="zero",
            title="Zero advantage",
            unit="% of groups",
            curves=(Curve(series="train/zero_advantage_fraction", label="groups", color=4),),
            scale=100.0,
            percent=True,
            needs=Needs.GROUPS,
            note="Groups whose episodes all ended alike teach nothing.",
        ),
        Chart(
            id="grad",
            title="Gradient norm",
            unit="before clipping",
            curves=(
                Curve(series="train/grad_norm_actor", label="actor", color=1),
                Curve(series="train/grad_norm_critic", label="critic", color=4),
            ),
            log=True,
        ),
    ),
)

_SERVED = Group(
    title="Shared services",
    charts=(
        Chart(
            id="env_speed",
            title="Environment speed",
            unit="steps per second",
            curves=(Curve(series="rollout/env_steps_per_s", label="steps/s", color=3),),
            note="All seats of this job together.",
        ),
        predict_latency(),
        group_size(
            unit="per shared forward",
            note="How many requests or jobs shared the frozen base with this one.",
            curves=(PREDICTED, TRAINED),
        ),
        device_share(unit="% of the training step, yours"),
    ),
)

RL = Board(
    unit="version",
    groups=(_PLAYED, _LEARNED, _SERVED),
    step="Policy version",
    x_axes=(("rollout/env_steps", "Environment steps"),),
)
