"""Charts of supervised fine-tuning."""

from frontend.charts.model import Board, Chart, Curve, Group, Needs

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
                Chart(
                    id="group",
                    title="Group size",
                    unit="jobs per shared forward",
                    curves=(Curve(series="service/group_size", label="jobs", color=5),),
                    note="How many jobs went through the frozen base together with this one.",
                ),
                Chart(
                    id="share",
                    title="Device time share",
                    unit="% of the step, yours",
                    curves=(Curve(series="service/busy_share", label="yours", color=5),),
                    scale=100.0,
                    note="Measured per group and split exactly; this is what is billed.",
                ),
            ),
        ),
    ),
)
