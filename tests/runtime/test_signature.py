"""The prefix contract and the compatibility class."""

from dataclasses import replace

import pytest

from gpu_runtime.batching.signature import ImageView, PrefixSignature, group_key

SIGNATURE = PrefixSignature(
    base="tiny-qwen3-vl",
    revision="0" * 64,
    dtype="float32",
    attention="packed",
    prompt_template="{instruction}",
    image_processing="x/255",
    views=(ImageView(key="base", height=64, width=64), ImageView(key="wrist", height=64, width=64)),
    query_tokens=0,
    taps=("merged", "vision"),
)

CHANGES: list[dict[str, object]] = [
    {"base": "small-qwen3-vl"},
    {"revision": "1" * 64},
    {"dtype": "bfloat16"},
    {"attention": "sdpa"},
    {"prompt_template": "Task: {instruction}"},
    {"image_processing": "x/127.5 - 1"},
    {"views": SIGNATURE.views[::-1]},
    {"views": SIGNATURE.views[:1]},
    {"views": (ImageView(key="base", height=96, width=64), SIGNATURE.views[1])},
    {"views": (ImageView(key="base", height=64, width=64, rotation_deg=180), SIGNATURE.views[1])},
    {"query_tokens": 8},
    {"taps": ("merged",)},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_part_of_the_contract_changes_the_hash_and_is_named(change: dict[str, object]) -> None:
    other = replace(SIGNATURE, **change)
    assert other.hash != SIGNATURE.hash
    assert SIGNATURE.difference(other) == list(change)


def test_a_signature_survives_its_json_form() -> None:
    restored = PrefixSignature.from_json(SIGNATURE.to_json())
    assert restored == SIGNATURE
    assert restored.hash == SIGNATURE.hash
    assert SIGNATURE.difference(restored) == []


@pytest.mark.parametrize("change", [{"pooling": "mean"}, {"views": [{"key": "base", "colour": "rgb"}]}])
def test_an_unknown_field_in_a_stored_signature_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"pooling|colour"):
        PrefixSignature.from_json(SIGNATURE.to_json() | change)


def test_a_missing_field_in_a_stored_signature_is_refused() -> None:
    value = SIGNATURE.to_json()
    del value["dtype"]
    with pytest.raises(TypeError, match="dtype"):
        PrefixSignature.from_json(value)


def test_the_compatibility_class_is_base_revision_and_dtype() -> None:
    key = group_key(base="b", revision="0" * 64, dtype="float32")
    assert key == group_key(base="b", revision="0" * 64, dtype="float32")
    others = [("c", "0" * 64, "float32"), ("b", "1" * 64, "float32"), ("b", "0" * 64, "bfloat16")]
    assert key not in {group_key(base=base, revision=revision, dtype=dtype) for base, revision, dtype in others}
