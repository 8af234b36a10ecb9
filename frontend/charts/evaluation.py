"""Charts of evaluations and of collecting rollouts: a step is an episode."""

import dataclasses

from frontend.charts.model import Board, Chart, Curve, Group
from frontend.charts.services import PREDICTED, group_size, predict_latency

_PREDICTIONS = (
    predict_latency(),
    group_size(
        unit="requests per shared forward",
        note="How many requests shared the frozen base with this job's.",
        curves=(dataclasses.replace(PREDICTED, label="requests"),),
    ),
)

EVALUATION = Board(
    unit="episode",
    step="Episode",
    groups=(
        Group(
            title="Episodes",
            charts=(
                Chart(
                    id="success",
                    title="Success so far",
                    unit="% of counted episodes",
                    curves=(Curve(series="eval/success_rate", label="success", color=1, episodes="eval/counted"),),
                    smooth=False,
                    percent=True,
                    scale=100.0,
                    note="Band: Wilson 95 % interval. Errors count as failures.",
                ),
                Chart(
                    id="return",
                    title="Return",
                    unit="mean so far, the environment's reward",
                    curves=(Curve(series="eval/return", label="return", color=1),),
                    smooth=False,
                    note="Of the episodes that were played to their end.",
                ),
                Chart(
                    id="length",
                    title="Episode length",
                    unit="steps, mean so far",
                    curves=(Curve(series="eval/episode_steps", label="steps", color=3),),
                    smooth=False,
                    note="Of the episodes that were played to their end.",
                ),
                Chart(
                    id="count",
                    title="Episodes",
                    unit="so far",
                    curves=(
                        Curve(series="eval/episodes", label="played", color=5, dotted=True),
                        Curve(series="eval/counted", label="counted", color=3),
                    ),
                    smooth=False,
                    note="Those solved at reset show nothing about the policy and are not counted.",
                ),
            ),
        ),
        Group(title="Shared services", charts=_PREDICTIONS),
    ),
)

ROLLOUT = Board(
    unit="episode",
    step="Episode",
    groups=(
        Group(
            title="Episodes",
            charts=(
                Chart(
                    id="success",
                    title="Success so far",
                    unit="% of episodes played",
                    curves=(
                        Curve(series="rollout/success_once", label="once", color=5, episodes="rollout/episodes"),
                        Curve(series="rollout/success_at_end", label="at end", color=1),
                    ),
                    smooth=False,
                    percent=True,
                    scale=100.0,
                    note="Band: Wilson 95 % interval of success once.",
                ),
                Chart(
                    id="return",
                    title="Return",
                    unit="mean so far, the environment's reward",
                    curves=(Curve(series="rollout/return", label="return", color=1),),
                    smooth=False,
                ),
                Chart(
                    id="length",
                    title="Episode length",
                    unit="steps, mean so far",
                    curves=(Curve(series="rollout/episode_steps", label="steps", color=3),),
                    smooth=False,
                ),
                Chart(
                    id="count",
                    title="Episodes",
                    unit="so far",
                    curves=(
                        Curve(series="rollout/episodes", label="played", color=3),
                        Curve(series="rollout/distinct_starts", label="starts", color=5, dotted=True),
                    ),
                    smooth=False,
                    note="Different initial states among those played; those solved at reset are left out.",
                ),
            ),
        ),
        Group(title="Shared services", charts=_PREDICTIONS),
    ),
)
