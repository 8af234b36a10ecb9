"""Pydantic's complaints as the API tells them."""

import pytest

from gpu_runtime.protocol.specs import SftJobSpec
from tenants.bodies import parse_body, parse_query
from tenants.errors import ApplicationError
from tenants.listing import PageQuery

GOOD = {
    "kind": "sft",
    "name": "push",
    "base_model": "tiny-qwen3-vl",
    "head": {"type": "mlp"},
    "dataset": {"id": "d"},
    "training": {"steps": 10},
}


def complaint(**changes: object) -> tuple[str, str, str]:
    with pytest.raises(ApplicationError) as caught:
        parse_body(SftJobSpec, GOOD | changes)
    assert caught.value.status == 422
    (error,) = caught.value.errors
    return error.pointer, error.code, error.detail


def test_a_valid_body_passes():
    assert parse_body(SftJobSpec, GOOD).training.batch_size == 16


def test_an_unknown_option_of_a_head_names_those_of_that_head():
    pointer, code, detail = complaint(head={"type": "mlp", "denoise_steps": 3})
    assert (pointer, code) == ("/head/denoise_steps", "extra_forbidden")
    assert "pca_dims" in detail
    assert "future_tokens" not in detail


def test_a_wrong_value_deep_inside_points_there_without_the_union_tag():
    pointer, _, detail = complaint(head={"type": "gr00t", "horizon": 65})
    assert pointer == "/head/horizon"
    assert "less than or equal to 64; got 65" in detail


def test_an_unknown_head_names_the_heads():
    pointer, code, detail = complaint(head={"type": "act"})
    assert (pointer, code) == ("/head", "union_tag_invalid")
    assert "'gr00t', 'oft', 'mlp'" in detail


def test_an_element_of_a_list_is_pointed_at_by_number():
    assert complaint(optimizer={"betas": [0.9, 1.5]})[0] == "/optimizer/betas/1"


def test_a_slash_in_a_name_is_escaped():
    assert complaint(**{"a/b~c": 1})[0] == "/a~1b~0c"


def test_a_missing_field_is_named():
    body = {key: value for key, value in GOOD.items() if key != "training"}
    with pytest.raises(ApplicationError) as caught:
        parse_body(SftJobSpec, body)
    assert caught.value.errors[0].detail == "'training' is required."


def test_a_long_value_is_cut_in_the_message():
    assert len(complaint(name="x" * 5_000)[2]) < 300


def test_a_body_that_is_no_object_is_refused():
    with pytest.raises(ApplicationError, match="not valid"):
        parse_body(SftJobSpec, ["sft"])


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 a pair"])
def test_text_no_database_keeps_is_refused_where_it_stands(text: str):
    pointer, code, _ = complaint(dataset={"id": text})
    assert (pointer, code) == ("/dataset/id", "text_invalid")
    assert complaint(**{text: 1})[1] == "text_invalid"


def test_such_text_in_a_query_is_refused_too():
    with pytest.raises(ApplicationError) as caught:
        parse_query(PageQuery, {"cursor": "a\0b"})
    assert caught.value.errors[0].pointer == "?cursor"
