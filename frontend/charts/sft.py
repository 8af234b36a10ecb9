"""Charts of supervised fine-tuning."""

import dataclasses

from frontend.charts.model import Board, Chart, Curve, Group, Needs
from frontend.charts.services import TRAINED, device_share, feature_hits, group_size

SFT = Board(
    unit="step",
    groups=(
        Group(
            title="Training",
            charts=(
                Chart(
                    id="loss",
                    title="Loss",
                    unit="per step, normalised actions",
                    curves=(Curve(series="train/loss", label="train", color=1),),
                    log=True,
                ),
                Chart(
                    id="error",
                    title="Held-out action error",
                    unit="mean absolute, robot units",
                    curves=(
                        Curve(series="eval/action_error", label="policy", color=1),
                        Curve(series="eval/baseline_error", label="mean action", color=2, dotted=True),
                    ),
                    smooth=False,
                    needs=Needs.HELD_OUT,
                    note="Episodes the policy never trains on. Dotted: always predicting the mean action.",
                ),
                Chart(
                    id="grad",
                    title="Gradient norm",
                    unit="before clipping",
                    curves=(Curve(series="train/grad_norm", label="norm", color=4),),
                    log=True,
                ),
                Chart(
                    id="speed",
                    title="Throughput",
                    unit="samples per second",
                    curves=(Curve(series="train/samples_per_s", label="samples/s", color=3),),
                ),
            ),
        ),
        Group(
            title="Shared service",
            charts=(
                group_size(
                    unit="jobs per shared forward",
                    note="How many jobs went through the frozen base together with this one.",
                    curves=(dataclasses.replace(TRAINED, label="jobs", color=5),),
                ),
                device_share(unit="% of the step, yours"),
                feature_hits(),
            ),
        ),
    ),
)
