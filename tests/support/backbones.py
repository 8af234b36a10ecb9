"""Random samples, and transformers' own forward of one sample, to hold the packed forward against."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from transformers import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone

EVERY_TAP = frozenset({"vision", "merged", "layer:0", "layer:2", "layer:-1"})


def random_feature(
    rng: np.random.Generator, *, sizes: Sequence[tuple[int, int]] = ((64, 64),), words: int = 3, queries: int = 0
) -> VLAFeature:
    """A sample of noise images (height, width each) and an instruction of random words."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return VLAFeature(
        images=tuple(rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for height, width in sizes),
        instruction=" ".join("".join(rng.choice(letters, int(rng.integers(1, 8)))) for _ in range(words)),
        query_tokens=queries,
    )


def ragged_group(seed: int, samples: int, *, views_min: int = 1) -> list[VLAFeature]:
    """Samples that differ in cameras, image sizes, instructions and query tokens."""
    rng = np.random.default_rng(seed)
    sides = [(32, 32), (64, 64), (64, 96), (96, 96), (128, 64)]
    return [
        random_feature(
            rng,
            sizes=[sides[int(rng.integers(len(sides)))]] * int(rng.integers(views_min, 4)),
            words=int(rng.integers(0, 12)),
            queries=int(rng.integers(0, 5)),
        )
        for _ in range(samples)
    ]


def taps_of(feature: VLAFeature) -> frozenset[str]:
    """Every tap that this sample can be read at."""
    taps = EVERY_TAP if feature.images else EVERY_TAP - {"vision", "merged"}
    return taps | {"query"} if feature.query_tokens else taps


class TransformersForward:
    """The same weights in transformers' plain model, fed one sample at a time by transformers' own processor."""

    def __init__(self, backbone: Qwen3VLBackbone) -> None:
        config = copy.deepcopy(backbone.model.config)  # transformers writes the attention's name into it
        self.model = Qwen3VLModel._from_config(config, attn_implementation="sdpa").eval()
        self.model.load_state_dict(backbone.model.state_dict())
        self.processor = Qwen2VLImageProcessorPil(
            patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_resize=False
        )

    def features(self, feature: VLAFeature) -> dict[str, torch.Tensor]:
        """Rows at every tap, computed from a byte-level prompt written out by hand."""
        ids = [256, *b"user\n"]
        for image in feature.images:
            ids += [258, *[260] * (image.shape[0] * image.shape[1] // 32**2), 259]
        ids += list(feature.instruction.encode())
        if feature.query_tokens:
            ids += list(f" Please predict the next {feature.query_tokens} robot actions: <action>".encode())
            ids += [262] * feature.query_tokens + list(b"<action>.")
        ids += [257, *b"\n", 256, *b"assistant\n"]
        rows = self.rows(ids, feature)
        if feature.query_tokens:
            rows["query"] = rows["layer:-1"][[place for place, token in enumerate(ids) if token == 262]]
        return rows

    @torch.no_grad()
    def rows(self, ids: list[int], feature: VLAFeature) -> dict[str, torch.Tensor]:
        """Rows at every tap but ``query`` for a prompt that is tokenised already."""
        pixels = dict(self.processor(list(feature.images), return_tensors="pt")) if feature.images else {}
        ids_1L = torch.tensor([ids])
        received: dict[int, torch.Tensor] = {}  # what layer n gets is the tap after layer n - 1
        hooks = [
            layer.register_forward_pre_hook(lambda _module, args, n=n: received.update({n: args[0]}))
            for n, layer in enumerate(self.model.language_model.layers)
        ]
        outputs = self.model(
            input_ids=ids_1L,
            pixel_values=pixels.get("pixel_values"),
            image_grid_thw=pixels.get("image_grid_thw"),
            mm_token_type_ids=(ids_1L == self.model.config.image_token_id).int(),
        )
        for hook in hooks:
            hook.remove()
        of_text = {"layer:-1": outputs.last_hidden_state[0]} | {f"layer:{n}": received[n + 1][0] for n in (0, 2)}
        if not feature.images:
            return of_text
        images = outputs.image_outputs
        return of_text | {"vision": images.last_hidden_state, "merged": torch.cat(list(images.pooler_output))}
