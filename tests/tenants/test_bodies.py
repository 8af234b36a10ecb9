"""Pydantic's complaints as the API tells them."""

import pytest

from gpu_runtime.protocol.job_specs import JobSpec
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


@pytest.mark.parametrize("count", [2**63, -(2**63) - 1, 10**40])
def test_a_whole_number_that_no_message_can_carry_is_refused_by_name(count: int):
    pointer, code, detail = complaint(training={"steps": 10, "checkpoint_every": count})
    assert (pointer, code) == ("/training/checkpoint_every", "number_invalid")
    assert str(2**63 - 1) in detail


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


RL = {
    "kind": "rl",
    "name": "push",
    "policy": {"artifact": "a"},
    "environment": {"id": "PushCube-v1"},
    "algorithm": {"type": "ppo"},
    "exploration": {"type": "gaussian"},
    "executed_steps": 4,
    "training": {"iterations": 10},
}


def union_complaints(**changes: object) -> dict[str, str]:
    with pytest.raises(ApplicationError) as caught:
        parse_body(JobSpec, RL | changes)
    return {error.pointer: error.detail for error in caught.value.errors}


def test_a_body_of_any_kind_becomes_that_kind():
    assert parse_body(JobSpec, GOOD).training.batch_size == 16
    assert parse_body(JobSpec, RL).total_steps == 10


def test_a_kind_that_there_is_not_names_those_there_are():
    assert union_complaints(kind="dpo") == {"/kind": "Unknown kind 'dpo'. Allowed: sft, rl, evaluation, rollout."}


def test_a_body_without_a_kind_names_those_there_are():
    body = {name: value for name, value in RL.items() if name != "kind"}
    with pytest.raises(ApplicationError) as caught:
        parse_body(JobSpec, body)
    (error,) = caught.value.errors
    assert (error.pointer, error.code) == ("/kind", "union_tag_not_found")
    assert "sft, rl, evaluation, rollout" in error.detail


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"training": {"iterations": 0}}, "/training/iterations", "greater than or equal to 1; got 0"),
        ({"algorithm": {"type": "ppo", "group_size": 8}}, "/algorithm/group_size", "Allowed: clip_low"),
        ({"algorithm": {"type": "dpo"}}, "/algorithm", "'ppo', 'decoupled_ppo', 'grpo', 'reinforce'"),
        ({"unexplored": [1]}, "/unexplored/0", "valid string"),
        ({"collection": {"seats": 2, "processes": 3}}, "/collection/processes", "at most seats (2)"),
        ({"collection": {"episodes": 9}, "algorithm": {"type": "grpo"}}, "/collection/episodes", "a multiple of"),
        ({"algorithm": {"type": "ppo", "value": {"per_step": True}}}, "/algorithm/value/per_step", "allowed: false"),
        ({"exploration": {"type": "flow_noise", "std_min": 0.5}}, "/exploration/std_min", "must be below"),
    ],
)
def test_a_complaint_points_at_the_field_it_is_about(change: dict, pointer: str, words: str):
    found = union_complaints(**change)
    assert list(found) == [pointer]
    assert words in found[pointer]
