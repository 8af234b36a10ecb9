"""The one prompt: a user message of the views in order, then the instruction (StarVLA's form for Qwen-VL).

Shapes: L prompt tokens, Q query tokens.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gpu_runtime.batching.collate import PreparedSample
from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.layout import ImageGrid, token_layout
from gpu_runtime.models.backbones.tokenizers import QUERY_SYMBOL, Tokenizer

MESSAGE_HEAD = "user\n"
MESSAGE_TAIL = "\n"
ANSWER_HEAD = "assistant\n"
QUERY_SUFFIX = " Please predict the next {count} robot actions: <action>{queries}<action>."
PROMPT_TEMPLATE = (
    "<|im_start|>" + MESSAGE_HEAD + "{<|vision_start|><|image_pad|>*tokens<|vision_end|> per view}{instruction}"
    "{query_tokens ? " + QUERY_SUFFIX + " : }<|im_end|>" + MESSAGE_TAIL + "<|im_start|>" + ANSWER_HEAD
)
"""Recorded in every prefix signature: another template is another policy."""

TEXTS_KEPT = 4096


class PromptBuilder:
    """Tokenises features; instructions repeat for thousands of frames, so their ids are kept."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        control = tokenizer.control
        self._head = (control.message_start, *tokenizer.encode(MESSAGE_HEAD))
        self._tail = (
            control.message_end,
            *tokenizer.encode(MESSAGE_TAIL),
            control.message_start,
            *tokenizer.encode(ANSWER_HEAD),
        )
        self._text_ids = lru_cache(maxsize=TEXTS_KEPT)(self._encode_text)

    def prepare(self, feature: VLAFeature, grids: Sequence[ImageGrid]) -> PreparedSample:
        """Ids, layout and query places of one sample.

        Raises ValueError for an instruction that contains control tokens, or query tokens that the tokenizer merges.
        """
        control = self._tokenizer.control
        text = (*self._text_ids(feature.instruction, feature.query_tokens), *self._tail)
        ids = list(self._head)
        for grid in grids:
            ids += [control.vision_start, *[control.image] * grid.tokens, control.vision_end]
        ids_L = np.array([*ids, *text], dtype=np.int64)
        layout = token_layout(head=len(self._head), grids=tuple(grids), tail=len(text))
        return PreparedSample(
            ids_L=ids_L,
            layout=layout,
            query_index_Q=self._query_places(ids_L, feature.query_tokens),
            images=feature.images,
            scope=feature.scope,
        )

    def _encode_text(self, instruction: str, query_tokens: int) -> tuple[int, ...]:
        suffix = QUERY_SUFFIX.format(count=query_tokens, queries=QUERY_SYMBOL * query_tokens) if query_tokens else ""
        if self._tokenizer.reserved.intersection(self._tokenizer.encode(instruction)):
            raise ValueError(f"instruction: {instruction!r} contains a control token of the base model")
        return tuple(self._tokenizer.encode(instruction + suffix))

    def _query_places(self, ids_L: np.ndarray, query_tokens: int) -> np.ndarray:
        """The last Q places whose id is the query token: an instruction may hold the symbol too."""
        places = np.flatnonzero(ids_L == self._tokenizer.control.query)
        if len(places) < query_tokens:
            raise ValueError(f"query_tokens: asked for {query_tokens}, the tokenizer kept {len(places)} apart")
        return places[len(places) - query_tokens :]
