"""Supervised fine-tuning as a tenant asks for it: head, data, optimizer, length. Other kinds: ``job_specs``."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.ordering import OrderedSpec

Tap = Annotated[str, Field(pattern=r"^(vision|merged|layer:-?\d+)$")]
"""Where a head reads the backbone: ``vision`` = patch tokens before the merger, ``merged`` = image tokens after
it, ``layer:n`` = hidden states of every prompt token after text layer n (negative counts from the end)."""

Horizon = Annotated[int, Field(ge=1, le=64, description="Actions predicted per observation (action chunk length).")]


class Gr00tHeadSpec(Message):
    """Diffusion transformer with flow matching, cross-attending to the backbone (GR00T N1.5, StarVLA's form)."""

    type: Literal["gr00t"] = "gr00t"
    horizon: Horizon = 8
    tap: Tap = "layer:-1"
    width: Annotated[int, Field(ge=16, le=4096)] = 768
    layers: Annotated[int, Field(ge=1, le=64)] = 16
    heads: Annotated[int, Field(ge=1, le=64)] = 12
    output_width: Annotated[int, Field(ge=16, le=4096)] = 1024
    future_tokens: Annotated[int, Field(ge=0, le=64)] = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    noise_draws: Annotated[int, Field(ge=1, le=16, description="Noise draws per sample and step (K).")] = 8
    denoise_steps: Annotated[int, Field(ge=1, le=64)] = 4
    condition: Annotated[
        Literal["standardized", "layer_norm", "raw"],
        Field(description="Backbone features: z-scored on your own frames, layer norm, or as they are (StarVLA)."),
    ] = "standardized"
    fit_frames: Annotated[int, Field(ge=2, le=4096, description="Frames the z-score is fitted on.")] = 256

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "Gr00tHeadSpec":
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 2 * heads ({2 * self.heads})")
        return self


class OftHeadSpec(Message):
    """Parallel regression from action-query tokens at the end of the prompt (OpenVLA-OFT, StarVLA's form)."""

    type: Literal["oft"] = "oft"
    horizon: Horizon = 8
    blocks: Annotated[int, Field(ge=1, le=16)] = 2
    expansion: Annotated[int, Field(ge=1, le=8)] = 2
    standardize: Annotated[bool, Field(description="z-score the query features on your own frames first.")] = True
    fit_frames: Annotated[int, Field(ge=2, le=4096, description="Frames the z-score is fitted on.")] = 256


class MlpHeadSpec(Message):
    """Chunk regression on the image-token grid, whitened by a PCA of the tenant's own frames."""

    type: Literal["mlp"] = "mlp"
    horizon: Horizon = 4
    tap: Tap = "vision"
    width: Annotated[int, Field(ge=16, le=4096)] = 256
    blocks: Annotated[int, Field(ge=1, le=16)] = 2
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    input_noise: Annotated[float, Field(ge=0, le=1)] = 0.1
    pca_dims: Annotated[int, Field(ge=1, le=1024)] = 64
    pca_frames: Annotated[int, Field(ge=2, le=4096)] = 256


HeadSpec = Annotated[Gr00tHeadSpec | OftHeadSpec | MlpHeadSpec, Field(discriminator="type")]


class DatasetSelection(Message):
    """Which dataset version, and which of its views the policy sees."""

    id: Annotated[str, Field(description="Dataset version id.")]
    cameras: Annotated[
        tuple[str, ...] | None,
        Field(description="Views in this order; default: all. []: none, the policy acts on its state alone."),
    ] = None
    action_dim: Annotated[int | None, Field(ge=1, description="Refuse the job unless the dataset has it.")] = None
    use_state: bool = True
    image_size: Annotated[int, Field(ge=32, le=1024, multiple_of=32, description="Square input, pixels.")] = 224
    instruction: Annotated[str | None, Field(max_length=500, description="Replaces the dataset's task text.")] = None


class OptimizerSpec(Message):
    """AdamW with warm-up, then cosine decay to ``min_lr_ratio`` (or constant)."""

    lr: Annotated[float, Field(gt=0, le=1)] = 1e-4
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0, le=1e-2)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 1e-2
    warmup_steps: Annotated[int, Field(ge=0)] = 50
    schedule: Literal["cosine", "constant"] = "cosine"
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.02
    grad_clip: Annotated[float, Field(gt=0)] = 1.0


class TrainingSpec(Message):
    """How long and how often."""

    steps: Annotated[int, Field(ge=1, le=10_000_000)]
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 16
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    holdout_fraction: Annotated[float, Field(ge=0, le=0.5, description="Share of episodes kept for evaluation.")] = 0.1
    evaluate_every: Annotated[int, Field(ge=1)] = 100
    checkpoint_every: Annotated[int, Field(ge=1)] = 50


class SftJobSpec(OrderedSpec):
    """Supervised fine-tuning of one action head on one dataset."""

    kind: Literal["sft"]
    base_model: Annotated[str, Field(description="A resident base model; the list is in the error and at /bases.")]
    head: HeadSpec
    dataset: DatasetSelection
    training: TrainingSpec
    optimizer: OptimizerSpec = OptimizerSpec()
    normalization: Annotated[
        Literal["quantile", "mean_std", "min_max"], Field(description="q01/q99, z-score or min/max of the dataset.")
    ] = "quantile"

    @property
    def total_steps(self) -> int:
        return self.training.steps
