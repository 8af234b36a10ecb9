"""Text to token ids: a checkpoint's own tokenizer, or a byte-level one for the built-in bases."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

QUERY_SYMBOL = "🔍"
"""StarVLA's action-query token: one token in Qwen's vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTokens:
    """Ids that structure a prompt; an instruction must never contain one."""

    message_start: int
    message_end: int
    vision_start: int
    vision_end: int
    image: int
    query: int


class Tokenizer(Protocol):
    """What a prompt needs from a tokenizer."""

    control: ControlTokens
    reserved: frozenset[int]  # ids that plain text must not produce

    def encode(self, text: str) -> list[int]: ...


class ByteTokenizer:
    """UTF-8 bytes are ids 0..255, control tokens follow. Deterministic and the same everywhere."""

    VOCABULARY = 272  # 256 bytes and 7 control tokens, rounded up to a multiple of 16
    VIDEO = 261  # the architecture wants the id; no prompt uses it
    control = ControlTokens(message_start=256, message_end=257, vision_start=258, vision_end=259, image=260, query=262)
    reserved: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        head, *rest = text.split(QUERY_SYMBOL)
        ids = list(head.encode())
        for part in rest:
            ids.append(self.control.query)
            ids.extend(part.encode())
        return ids


class CheckpointTokenizer:
    """The tokenizer in a checkpoint's folder."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError when a token of the prompt template isn't one single token of the vocabulary."""
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.control = ControlTokens(
            message_start=self._single("<|im_start|>"),
            message_end=self._single("<|im_end|>"),
            vision_start=self._single("<|vision_start|>"),
            vision_end=self._single("<|vision_end|>"),
            image=self._single("<|image_pad|>"),
            query=self._single(QUERY_SYMBOL),
        )
        special = {token_id for token_id, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        self.reserved = frozenset(special) | {self.control.vision_start, self.control.image, self.control.vision_end}

    def _single(self, text: str) -> int:
        ids = self.encode(text)
        if len(ids) != 1:
            raise ValueError(f"tokenizer: {text!r} must be one token of the vocabulary, it is {len(ids)}: {ids}")
        return ids[0]

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)
