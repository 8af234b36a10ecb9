"""One packed forward for samples of many adapters: the base's products shared, each low-rank part its tenant's own.

Nothing is kept in the model: which rows are whose travels with the running thread. Only the text stack is adapted;
vision and mergers run without gradient.
"""

from collections.abc import Callable, Sequence

import torch

from gpu_runtime.batching.collate import PackedBatch, PreparedSample, collate
from gpu_runtime.batching.taps import Tap, plan_taps
from gpu_runtime.models.backbones.packed_forward import PackedForward, PackedOutputs
from gpu_runtime.models.errors import BaseMismatch
from gpu_runtime.models.lora.adapter import AdaptableBase, LoraAdapter
from gpu_runtime.models.lora.linear import attach
from gpu_runtime.models.lora.plan import adapted_groups, adapting, plan_rows

Delivered = list[dict[str, torch.Tensor]]
Deliver = Callable[[PackedBatch, PackedOutputs, Sequence[dict[str, Tap]]], Delivered]


def require_own_base(backbone: AdaptableBase, adapters: Sequence[LoraAdapter | None]) -> None:
    """Raises BaseMismatch for an adapter made for another base, revision or precision."""
    own = backbone.info
    for index, adapter in enumerate(adapters):
        if adapter is None:
            continue
        made_for = adapter.base
        if (made_for.name, made_for.revision, made_for.dtype) != (own.name, own.revision, own.dtype):
            raise BaseMismatch(
                f"adapters[{index}]: made for {made_for.name}@{made_for.revision} in {made_for.dtype}, "
                f"the resident base is {own.name}@{own.revision} in {own.dtype}"
            )


def run_adapted(
    backbone: AdaptableBase,
    forward: PackedForward,
    samples: Sequence[PreparedSample],
    asked: Sequence[dict[str, Tap]],
    adapters: Sequence[LoraAdapter | None],
    *,
    max_tokens: int,
    grad: bool,
    deliver: Deliver,
    beyond: Sequence[Tap] = (),
) -> Delivered:
    """For each sample the rows at its taps; with ``grad`` differentiable to every adapter's parameters.

    ``beyond``: taps that every sample runs to without anybody reading them; no adapter acts there.
    """
    attach(backbone.lora_modules())
    read = [plan_taps(list(taps.values())).depth for taps in asked]
    depths = [plan_taps([*taps.values(), *beyond]).depth for taps in asked]
    results: Delivered = [{} for _ in samples]
    for needs_text in (True, False):
        chosen = [index for index, depth in enumerate(depths) if bool(depth) is needs_text]
        own = [adapters[index] if needs_text else None for index in chosen]
        for group in adapted_groups([samples[index] for index in chosen], own, max_tokens=max_tokens):
            members = [chosen[place] for place in group]
            packed = [samples[index] for index in members]
            deepest = max(depths[index] for index in members)  # the order is the tenants', not the depths'
            batch = collate(packed, depths=[deepest] * len(members))
            taps = [asked[index] for index in members]
            plan = plan_rows(
                [sample.length for sample in packed], [read[index] for index in members], [own[p] for p in group]
            )
            reached = plan_taps([*(tap for tap_of in taps for tap in tap_of.values()), *beyond])
            with adapting(plan):
                outputs = forward.run(batch, reached, grad=grad)
            for index, rows in zip(members, deliver(batch, outputs, taps), strict=True):
                results[index] = rows
    return results
