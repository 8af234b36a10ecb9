"""Tenants with LoRA on the base: forward, backward and AdamW of a step of all, in one group.

Two figures. First, plain is PEFT, which switches adapters tenant by tenant on transformers' own model, pictures and
position ids prepared beforehand, and torch's fused AdamW. Second, plain is our own packed forward, one tenant at a
time, so that both sides run the same kernels and grouping alone differs. Our sides update as slots do.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.models.optimization import TrainedWeights
from gpu_runtime.protocol.lora import TARGET_MODULES, LoraSpec
from gpu_runtime.protocol.specs import OptimizerSpec
from tests.benchmarks.bench_group import make_samples
from tests.benchmarks.figures import Figure, Setting
from tests.benchmarks.interleaved import interleave

TENANTS, BATCH, SIZE = 8, 1, 64
TAP = "layer:-1"
FULL_TURNS = 15
SPEC = LoraSpec()


OPTIMIZER = OptimizerSpec(lr=1e-4, warmup_steps=0)


class Ours:
    """Adapters over the resident base."""

    def __init__(self, backbone: Backbone, samples: Sequence[Sequence[VLAFeature]]) -> None:
        self.backbone, self.samples = backbone, samples
        self.adapters = [LoraAdapter(SPEC, backbone) for _ in samples]
        for seed, adapter in enumerate(self.adapters):
            adapter.reset_parameters(torch.Generator().manual_seed(seed))
        self.weights = [TrainedWeights.of(OPTIMIZER, nn.Module(), adapter) for adapter in self.adapters]

    def together(self) -> list[float]:
        """One forward and one backward of all; their losses."""
        return self._step(range(len(self.adapters)))

    def one_by_one(self) -> list[float]:
        """The same kernels, tenant by tenant."""
        return [loss for tenant in range(len(self.adapters)) for loss in self._step([tenant])]

    def _step(self, tenants: Sequence[int]) -> list[float]:
        features = [feature for tenant in tenants for feature in self.samples[tenant]]
        owners = [self.adapters[tenant] for tenant in tenants for _ in self.samples[tenant]]
        rows = iter(self.backbone.encode_adapted(features, [{TAP}] * len(features), owners, True))
        losses = [
            torch.cat([next(rows)[TAP] for _ in self.samples[tenant]]).float().square().mean() for tenant in tenants
        ]
        torch.stack(losses).sum().backward()
        for tenant in tenants:
            weights = self.weights[tenant]
            weights.update(norm=weights.gradient_norm(), rate=OPTIMIZER.lr, clip=OPTIMIZER.grad_clip)
        return [loss.item() for loss in losses]


class Switched:
    """The same adapters in PEFT over a copy of the base in transformers' model."""

    def __init__(self, ours: Ours) -> None:
        backbone = cast(Qwen3VLBackbone, ours.backbone)
        config = copy.deepcopy(backbone.model.config)  # transformers writes the attention's name into it
        base = Qwen3VLModel._from_config(config, attn_implementation="sdpa").eval()
        base.load_state_dict(backbone.model.state_dict())
        base.to(device=backbone.info.device, dtype=next(backbone.model.parameters()).dtype)
        self.inputs = [_inputs(backbone, base, samples) for samples in ours.samples]
        targets = rf".*language_model\.layers\..*\.({'|'.join(TARGET_MODULES)})"
        lora = LoraConfig(r=SPEC.rank, lora_alpha=SPEC.alpha, target_modules=targets)
        self.names = [f"t{index}" for index in range(len(ours.adapters))]
        self.model = cast(PeftModel, get_peft_model(base, lora, adapter_name=self.names[0]))
        for name in self.names[1:]:
            self.model.add_adapter(name, lora)
        self.model.eval()
        adopted = zip(self.names, ours.adapters, strict=True)
        self.parameters = {name: self._adopt(name, own) for name, own in adopted}
        self.optimizers = [
            torch.optim.AdamW(own, lr=OPTIMIZER.lr, betas=OPTIMIZER.betas, weight_decay=0.0, fused=True)
            for own in self.parameters.values()
        ]

    def step(self) -> list[float]:
        """A step of every tenant, one after another; their losses."""
        losses = []
        for name, inputs, optimizer in zip(self.names, self.inputs, self.optimizers, strict=True):
            self.model.set_adapter(name)
            loss = self.model(**inputs, use_cache=False).last_hidden_state.float().square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters[name], OPTIMIZER.grad_clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        return losses

    def _adopt(self, name: str, own: LoraAdapter) -> list[nn.Parameter]:
        """The tenant's parameters, with our start."""
        modules = dict(self.model.base_model.model.named_modules())
        parameters: list[nn.Parameter] = []
        for path, down_rI, up_Or in zip(own.paths, own.down, own.up, strict=True):
            pair = modules[path].lora_A[name].weight, modules[path].lora_B[name].weight
            for theirs, mine in zip(pair, (down_rI, up_Or), strict=True):
                theirs.data.copy_(mine.data)
                parameters.append(theirs)
        return parameters


def _inputs(backbone: Qwen3VLBackbone, base: Qwen3VLModel, samples: Sequence[VLAFeature]) -> dict[str, torch.Tensor]:
    """What transformers' forward wants for a batch of equal lengths, position ids included."""
    prepared = [backbone._prepare(feature) for feature in samples]
    processor = Qwen2VLImageProcessorPil(patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_resize=False)
    images = [image for feature in samples for image in feature.images]
    ids = torch.from_numpy(np.stack([sample.ids_L for sample in prepared]))
    positions = torch.from_numpy(np.stack([sample.layout.positions_3L for sample in prepared], axis=1))
    inputs = dict(processor(images, return_tensors="pt"))
    inputs |= {"input_ids": ids, "position_ids": positions}
    inputs["mm_token_type_ids"] = (ids == base.config.image_token_id).int()
    return {name: value.to(backbone.info.device) for name, value in inputs.items()}


def measure(backbone: Backbone, setting: Setting, *, tenants: int = TENANTS, batch: int = BATCH) -> Iterator[Figure]:
    """Both figures, after a check that all sides start from the same losses."""
    rng, turns = np.random.default_rng(0), setting.turns(full=FULL_TURNS)
    samples = [make_samples(rng, batch, ragged=False, size=SIZE) for _ in range(tenants)]
    grouped, single, peft = (Ours(backbone, samples) for _ in range(3))
    switched = Switched(peft)
    losses = grouped.together()
    alone, theirs = single.one_by_one(), switched.step()
    close = 1e-4 if setting.dtype == "float32" else 5e-2
    assert np.allclose(losses, theirs, rtol=close), "PEFT's losses are others"
    same = losses == alone
    assert same or setting.device != "cpu", "a step in the group is another than alone"
    work = f"{tenants} tenants x {batch} samples, rank {SPEC.rank}: forward, backward, AdamW"
    details = {"tenants": tenants, "batch": batch, "rank": SPEC.rank, "bit_equal_to_alone": same}
    for plain, kernels in ((switched.step, "PEFT switching"), (single.one_by_one, "same kernels, one by one")):
        times = interleave(plain, grouped.together, repetitions=turns, device=setting.device)
        yield Figure(
            key=f"lora_{tenants}x{batch}",
            base=backbone.info.name,
            work=f"{work}; plain: {kernels}",
            plain=times[0],
            levers=times[1],
            repetitions=turns,
            device=setting.device,
            details=details | {"plain": kernels},
        )
