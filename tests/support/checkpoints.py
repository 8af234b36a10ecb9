"""A Qwen3-VL checkpoint folder as a hub would serve it: tiny weights, a real byte-level BPE tokenizer."""

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from gpu_runtime.models.backbones.built_in import built_in_config

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


def write_tokenizer(folder: Path, *, query_is_one_token: bool = True) -> dict[str, int]:
    """Save a BPE tokenizer over bytes; returns its vocabulary."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("🔍")[0][0], "th"]
    merges: list[tuple[str, str]] = [("t", "h")]
    if query_is_one_token:
        symbol = pieces[0]
        merges += [(symbol[:n], symbol[n]) for n in range(1, len(symbol))]
    tokens = [*alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return tokenizer.get_vocab()


def write_checkpoint(folder: Path, weights: Qwen3VLModel) -> None:
    """Save ``weights`` the way Qwen publishes them: with a language head, sharded safetensors, a preprocessor."""
    vocabulary = write_tokenizer(folder)
    config = built_in_config("tiny-qwen3-vl")
    config.image_token_id = vocabulary["<|image_pad|>"]
    config.video_token_id = vocabulary["<|video_pad|>"]
    config.vision_start_token_id = vocabulary["<|vision_start|>"]
    config.vision_end_token_id = vocabulary["<|vision_end|>"]
    with torch.random.fork_rng(devices=[]):
        published = Qwen3VLForConditionalGeneration(config)
    published.model.load_state_dict(weights.state_dict())
    published.save_pretrained(folder, max_shard_size="4MB")
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"patch_size": 16, "merge_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    )
