"""Prompts: the template, the query tokens, and what an instruction may not contain."""

import numpy as np
import pytest

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.layout import ImageGrid
from gpu_runtime.models.backbones.prompt import PROMPT_TEMPLATE, PromptBuilder
from gpu_runtime.models.backbones.tokenizers import QUERY_SYMBOL, ByteTokenizer

GRID = ImageGrid(4, 4, 2)
NAMES = {
    256: "<|im_start|>",
    257: "<|im_end|>",
    258: "<|vision_start|>",
    259: "<|vision_end|>",
    260: "<|image_pad|>",
    262: QUERY_SYMBOL,
}


def feature(instruction: str, queries: int = 0) -> VLAFeature:
    return VLAFeature(images=(np.zeros((64, 64, 3), np.uint8),), instruction=instruction, query_tokens=queries)


def written_out(ids: np.ndarray) -> str:
    """The prompt as text, control tokens by name."""
    return b"".join(NAMES[i].encode() if i in NAMES else bytes([i]) for i in ids.tolist()).decode()


@pytest.fixture
def prompts() -> PromptBuilder:
    return PromptBuilder(ByteTokenizer())


def test_the_prompt_is_views_in_order_then_the_instruction(prompts: PromptBuilder) -> None:
    sample = prompts.prepare(feature("push the cube"), [GRID, ImageGrid(2, 4, 2)])
    view = "<|vision_start|>{}<|vision_end|>"
    assert written_out(sample.ids_L) == (
        "<|im_start|>user\n"
        + view.format("<|image_pad|>" * 4)
        + view.format("<|image_pad|>" * 2)
        + "push the cube<|im_end|>\n<|im_start|>assistant\n"
    )
    assert len(sample.ids_L) == sample.length
    assert set(sample.ids_L[sample.layout.image_index_M].tolist()) == {260}


def test_query_tokens_follow_starvlas_suffix_without_spaces(prompts: PromptBuilder) -> None:
    sample = prompts.prepare(feature("push", queries=3), [GRID])
    assert (
        f"push Please predict the next 3 robot actions: <action>{QUERY_SYMBOL * 3}<action>.<|im_end|>"
        in written_out(sample.ids_L)
    )
    assert sample.ids_L[sample.query_index_Q].tolist() == [262] * 3
    assert np.diff(sample.query_index_Q).tolist() == [1, 1]


def test_the_last_query_symbols_are_the_queries_when_the_instruction_holds_one(prompts: PromptBuilder) -> None:
    plain = prompts.prepare(feature("look", queries=2), [GRID])
    sample = prompts.prepare(feature(f"look{QUERY_SYMBOL}", queries=2), [GRID])
    assert (sample.query_index_Q - plain.query_index_Q).tolist() == [1, 1]


@pytest.mark.parametrize("instruction", ["", "große Würfel schieben 🤖", "a\nb", "<|image_pad|>", "x" * 500])
def test_any_text_reaches_the_built_in_bases_as_its_bytes(prompts: PromptBuilder, instruction: str) -> None:
    sample = prompts.prepare(feature(instruction), [GRID])
    ids = sample.ids_L.tolist()
    assert ids.count(260) == GRID.tokens, "text never becomes an image token"
    assert bytes(ids[ids.index(259) + 1 : ids.index(257)]).decode() == instruction


def test_the_recorded_template_names_every_fixed_part_of_the_prompt(prompts: PromptBuilder) -> None:
    text = written_out(prompts.prepare(feature("INSTRUCTION", queries=1), [GRID]).ids_L)
    for part in PROMPT_TEMPLATE.replace("{count}", "1").replace("{queries}", QUERY_SYMBOL).split("{"):
        fixed = part.split("}")[-1]
        assert fixed in text
