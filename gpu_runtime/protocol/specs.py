"""Supervised fine-tuning as a tenant asks for it: head, data, optimizer, length. Other kinds: ``job_specs``."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from gpu_runtime.protocol.base import Message, shown
from gpu_runtime.protocol.lora import LoraSpec
from gpu_runtime.protocol.ordering import OrderedSpec

Tap = Annotated[
    str,
    Field(
        pattern=r"^(vision|merged|layer:-?\d+)$",
        description="Where the head reads the base: vision (patches), merged (image tokens), or layer:n of the text, "
        "-1 the last.",
    ),
]
"""Where a head reads the backbone: ``vision`` = patch tokens before the merger, ``merged`` = image tokens after
it, ``layer:n`` = hidden states of every prompt token after text layer n (negative counts from the end)."""

Horizon = Annotated[
    int,
    Field(
        ge=1,
        le=64,
        description="Actions predicted per observation (action chunk length).",
        json_schema_extra=shown(label="Chunk length", unit="actions"),
    ),
]
Width = Annotated[int, Field(ge=16, le=4096, description="Hidden units of the head; more learn slower and cost more.")]
Blocks = Annotated[int, Field(ge=1, le=16, description="Residual blocks behind each other.")]
Dropout = Annotated[
    float, Field(ge=0, lt=1, description="Share of units left out in a step, against learning by heart.")
]


FitFrames = Annotated[
    int,
    Field(ge=2, le=4096, description="Frames the z-score is fitted on.", json_schema_extra=shown(unit="frames")),
]


class Gr00tHeadSpec(Message):
    """Diffusion transformer with flow matching, cross-attending to the backbone (GR00T N1.5, StarVLA's form)."""

    model_config = ConfigDict(json_schema_extra=shown(label="GR00T"))

    type: Literal["gr00t"] = "gr00t"
    horizon: Horizon = 8
    tap: Tap = "layer:-1"
    width: Annotated[
        int, Field(ge=16, le=4096, description="Hidden units of a token; a multiple of twice the attention heads.")
    ] = 768
    layers: Annotated[int, Field(ge=1, le=64, description="Transformer layers.")] = 16
    heads: Annotated[
        int,
        Field(
            ge=1, le=64, description="Attention heads of a layer.", json_schema_extra=shown(label="Attention heads")
        ),
    ] = 12
    output_width: Annotated[
        int, Field(ge=16, le=4096, description="Units between the transformer and the actions.")
    ] = 1024
    future_tokens: Annotated[
        int, Field(ge=0, le=64, description="Learned tokens that attend beside the actions (GR00T N1.5 has 32).")
    ] = 32
    dropout: Dropout = 0.2
    noise_draws: Annotated[int, Field(ge=1, le=16, description="Noise draws per sample and step (K).")] = 8
    denoise_steps: Annotated[
        int, Field(ge=1, le=64, description="Euler steps from noise to actions when it acts; more take longer.")
    ] = 4
    condition: Annotated[
        Literal["standardized", "layer_norm", "raw"],
        Field(description="Backbone features: z-scored on your own frames, layer norm, or as they are (StarVLA)."),
    ] = "standardized"
    fit_frames: FitFrames = 256

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "Gr00tHeadSpec":
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 2 * heads ({2 * self.heads})")
        return self


class OftHeadSpec(Message):
    """Parallel regression from action-query tokens at the end of the prompt (OpenVLA-OFT, StarVLA's form)."""

    model_config = ConfigDict(json_schema_extra=shown(label="OFT"))

    type: Literal["oft"] = "oft"
    horizon: Horizon = 8
    blocks: Blocks = 2
    expansion: Annotated[int, Field(ge=1, le=8, description="Hidden units as a multiple of the base's width.")] = 2
    standardize: Annotated[bool, Field(description="z-score the query features on your own frames first.")] = True
    fit_frames: FitFrames = 256


class MlpHeadSpec(Message):
    """Chunk regression on the image-token grid, whitened by a PCA of the tenant's own frames."""

    model_config = ConfigDict(json_schema_extra=shown(label="MLP"))

    type: Literal["mlp"] = "mlp"
    horizon: Horizon = 4
    tap: Tap = "vision"
    width: Width = 256
    blocks: Blocks = 2
    dropout: Dropout = 0.1
    input_noise: Annotated[
        float, Field(ge=0, le=1, description="Std of the noise added to the whitened inputs while it trains.")
    ] = 0.1
    pca_dims: Annotated[
        int,
        Field(
            ge=1,
            le=1024,
            description="Principal components kept of the image tokens.",
            json_schema_extra=shown(label="PCA dimensions"),
        ),
    ] = 64
    pca_frames: Annotated[
        int,
        Field(
            ge=2,
            le=4096,
            description="Frames of yours the components are fitted on.",
            json_schema_extra=shown(label="PCA frames", unit="frames"),
        ),
    ] = 256


HeadSpec = Annotated[Gr00tHeadSpec | OftHeadSpec | MlpHeadSpec, Field(discriminator="type")]


class DatasetSelection(Message):
    """Which dataset version, and which of its views the policy sees."""

    id: Annotated[
        str,
        Field(
            description="Id of a dataset version of yours that is ready.",
            json_schema_extra=shown(label="Dataset"),
        ),
    ]
    cameras: Annotated[
        tuple[str, ...] | None,
        Field(description="Views in this order; default: all. []: none, the policy acts on its state alone."),
    ] = None
    action_dim: Annotated[
        int | None,
        Field(
            ge=1,
            description="Refuse the job unless the dataset's actions have so many.",
            json_schema_extra=shown(label="Action dimensions"),
        ),
    ] = None
    use_state: Annotated[bool, Field(description="The policy also sees the recorded state vector.")] = True
    image_size: Annotated[
        int,
        Field(
            ge=32,
            le=1024,
            multiple_of=32,
            description="Side of the square input, a multiple of 32. Smaller is cheaper.",
            json_schema_extra=shown(unit="px"),
        ),
    ] = 224
    instruction: Annotated[str | None, Field(max_length=500, description="Replaces the dataset's task text.")] = None


class OptimizerSpec(Message):
    """AdamW with warm-up, then cosine decay to ``min_lr_ratio`` (or constant)."""

    lr: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="Step size of AdamW after the warm-up; 1e-3 suits small heads, 1e-4 large ones.",
            json_schema_extra=shown(label="Learning rate"),
        ),
    ] = 1e-4
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]],
        Field(description="Memory of AdamW's mean and of its variance (Loshchilov and Hutter 2019)."),
    ] = (0.9, 0.95)
    eps: Annotated[
        float,
        Field(gt=0, le=1e-2, description="Added to AdamW's denominator.", json_schema_extra=shown(label="Epsilon")),
    ] = 1e-8
    weight_decay: Annotated[
        float, Field(ge=0, le=1, description="Decoupled decay of the weights, times the learning rate in each step.")
    ] = 1e-2
    warmup_steps: Annotated[
        int,
        Field(
            ge=0,
            description="Steps in which the learning rate rises from zero.",
            json_schema_extra=shown(label="Warm-up", unit="steps"),
        ),
    ] = 50
    schedule: Annotated[
        Literal["cosine", "constant"],
        Field(description="After the warm-up the learning rate falls along a cosine, or stays."),
    ] = "cosine"
    min_lr_ratio: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Where the cosine ends, as a share of the learning rate.",
            json_schema_extra=shown(label="Final learning rate"),
        ),
    ] = 0.02
    grad_clip: Annotated[
        float,
        Field(
            gt=0,
            description="Largest norm of a gradient; longer ones are shortened.",
            json_schema_extra=shown(label="Gradient clip"),
        ),
    ] = 1.0


class TrainingSpec(Message):
    """How long and how often."""

    steps: Annotated[
        int, Field(ge=1, le=10_000_000, description="Optimizer updates.", json_schema_extra=shown(unit="steps"))
    ]
    batch_size: Annotated[
        int,
        Field(
            ge=1,
            le=1024,
            description="Samples of one update. Steps times batch size are billed as training samples.",
            json_schema_extra=shown(unit="samples"),
        ),
    ] = 16
    seed: Annotated[
        int, Field(ge=0, le=2**31 - 1, description="Of weights, batches and noise: the same seed repeats the job.")
    ] = 0
    holdout_fraction: Annotated[
        float,
        Field(
            ge=0,
            le=0.5,
            description="Share of episodes kept for evaluation.",
            json_schema_extra=shown(label="Held out"),
        ),
    ] = 0.1
    evaluate_every: Annotated[
        int,
        Field(ge=1, description="Steps between errors on held-out episodes.", json_schema_extra=shown(unit="steps")),
    ] = 100
    checkpoint_every: Annotated[
        int,
        Field(
            ge=1,
            description="Steps between checkpoints, from which a job is resumed and at which it stops.",
            json_schema_extra=shown(unit="steps"),
        ),
    ] = 50


class SftJobSpec(OrderedSpec):
    """Supervised fine-tuning of one action head on one dataset."""

    kind: Literal["sft"]
    base_model: Annotated[
        str,
        Field(
            description="The frozen model that stays on the device; you train the head on it. The list is at /bases."
        ),
    ]
    head: Annotated[
        HeadSpec,
        Field(
            description="What turns the base's features into actions.", json_schema_extra=shown(label="Action head")
        ),
    ]
    dataset: Annotated[DatasetSelection, Field(description="Which demonstrations, and what of them the policy sees.")]
    training: Annotated[TrainingSpec, Field(description="How long and how often.")]
    optimizer: Annotated[
        OptimizerSpec, Field(description="AdamW with warm-up, then a cosine or a constant learning rate.")
    ] = OptimizerSpec()
    normalization: Annotated[
        Literal["quantile", "mean_std", "min_max"],
        Field(description="Scale of actions and state: q01/q99, z-score or min/max of the dataset."),
    ] = "quantile"
    lora: Annotated[
        LoraSpec | None,
        Field(
            description="Low-rank updates of the base's text, trained with a head that reads it (tap layer:n or OFT); "
            "every epoch then runs the base forward and backward. Without it the base stays as it is.",
            json_schema_extra=shown(label="LoRA on the base"),
        ),
    ] = None

    @property
    def total_steps(self) -> int:
        return self.training.steps
