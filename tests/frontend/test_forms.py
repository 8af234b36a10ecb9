"""A specification and its form are each other's inverse, whatever the models hold."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from frontend.forms import posted
from frontend.forms.bound import Binding
from frontend.forms.items import labels_of
from frontend.forms.nodes import ON, Choice, Group, Leaf, Node, Rows, Switch
from frontend.forms.offers import Offering
from frontend.forms.posted import spec_of, texts_of
from frontend.forms.presets import PRESETS, preset_texts
from frontend.forms.schema import form_of, job_form
from frontend.forms.snippets import as_json
from frontend.forms.texts import to_text
from frontend.forms.walk import names_of
from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.specs import SftJobSpec
from jobs.api.examples import SPECIFICATIONS
from tests.support.any_spec import any_spec

KINDS = sorted(job_form().options)
_SPECS: TypeAdapter[Any] = TypeAdapter(JobSpec)


def check_round_trip(spec: dict[str, Any]) -> None:
    wanted = _SPECS.validate_python(spec)
    told = json.loads(as_json(spec_of(job_form(), texts_of(job_form(), spec))))
    assert _SPECS.validate_python(told) == wanted


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_specification_comes_back_from_its_form_as_it_went_in(kind: str, data: st.DataObject):
    check_round_trip(data.draw(any_spec(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_of_a_job_comes_back_too_though_it_names_every_default(kind: str):
    check_round_trip(_SPECS.validate_python(SPECIFICATIONS[kind]).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("rl", {"algorithm": {"type": "ppo", "target_kl": None, "value_clip": None}}),
        ("rl", {"algorithm": {"type": "grpo", "filter_low": 0.1, "filter_high": 0.9}}),
        ("rl", {"optimizer": {"lr": 3e-5}}),
        ("rl", {"optimizer": {}}),
        ("rl", {"unexplored": ["grip, left", "[0]", " spaced "]}),
        ("sft", {"dataset": {"id": "d", "cameras": []}}),
        ("sft", {"dataset": {"id": "d", "instruction": ""}}),
        ("sft", {"lora": {}}),
        ("sft", {"lora": None}),
        ("sft", {"lora": {"rank": 4, "alpha": 8.5, "target_modules": ["v_proj", "q_proj"]}}),
        ("sft", {"name": '"quoted"'}),
        ("sft", {"name": "none"}),
        ("rollout", {"environment": {"id": "PushCube-v1", "cameras": {"a = b": "base", "c": "d"}}}),
    ],
)
def test_values_that_look_like_something_else_survive(kind: str, part: dict[str, Any]):
    check_round_trip(SPECIFICATIONS[kind] | part)


def test_a_form_that_forgets_a_null_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(posted, "to_text", lambda leaf, value: "" if value is None else to_text(leaf, value))
    with pytest.raises(AssertionError):
        check_round_trip(SPECIFICATIONS["rl"] | {"algorithm": {"type": "ppo", "target_kl": None}})


def test_only_what_was_set_is_sent():
    texts = texts_of(job_form(), SPECIFICATIONS["sft"])
    assert spec_of(job_form(), texts) == SPECIFICATIONS["sft"] | {"head": {"type": "mlp"}}  # a horizon of 4 is usual


def test_a_switch_that_is_off_sends_nothing_of_what_stands_behind_it():
    texts = texts_of(job_form(), SPECIFICATIONS["sft"] | {"lora": {"rank": 4}})
    assert (texts["lora"], texts["lora.rank"]) == ("on", "4")
    assert spec_of(job_form(), texts)["lora"] == {"rank": 4}
    assert "lora" not in spec_of(job_form(), texts | {"lora": ""})


def test_beside_a_value_that_is_set_the_groups_other_defaults_are_sent():
    texts = texts_of(job_form(), SPECIFICATIONS["rl"]) | {"optimizer.lr": "3e-5"}
    told = _SPECS.validate_python(spec_of(job_form(), texts))
    assert (told.optimizer.lr, told.optimizer.schedule, told.optimizer.grad_clip) == (3e-5, "constant", 0.5)


@pytest.mark.parametrize(("text", "value"), [("abc", "abc"), ("1.5", 1.5), ("1e3", 1000), ("20", 20), (" 7 ", 7)])
def test_what_is_no_number_stays_text_for_the_model_to_refuse(text: str, value: Any):
    assert spec_of(job_form(), {"kind": "sft", "training.steps": text})["training"] == {"steps": value}


class Extended(SftJobSpec):
    """A later release."""

    wobble: Annotated[int, Field(ge=1, le=9, description="How much it wobbles.")] = 3
    inner: Annotated["Inner", Field(description="More of it.")]


class Inner(Message):
    """A group of the later release."""

    colour: Annotated[str, Field(description="Any.")]
    mute: bool = False


class Always(Message):
    """A release in which a group that may be null has a default."""

    inner: Annotated["Inner | None", Field(description="More of it.")] = Inner(colour="red")


def test_a_group_that_may_be_null_but_is_not_at_first_is_refused():
    with pytest.raises(TypeError, match="inner: a group that may be null must be"):
        form_of(Always)


def later_form() -> Choice:
    group = form_of(Extended)
    assert isinstance(group, Group)
    return Choice(name="", label="", help="-", required=True, tag="kind", options={"sft": group})


def test_a_new_field_appears_in_the_form_without_code():
    sections = Binding(texts={"kind": "sft"}, errors={}, offering=Offering()).sections(later_form())
    labels = labels_of(sections)
    assert {"wobble", "inner.colour", "inner.mute"} <= set(labels)
    assert spec_of(later_form(), {"kind": "sft", "wobble": "5", "inner.mute": "yes"})["wobble"] == 5


def test_every_field_of_every_kind_is_on_its_page():
    for kind, option in job_form().options.items():
        for name in names_of(option):
            texts = {"kind": kind} | _reaching(job_form(), name)
            shown = set(labels_of(Binding(texts=texts, errors={}, offering=Offering()).sections(job_form())))
            assert name in shown | {"cloned_from"}, (kind, name)


def test_every_field_is_explained():
    assert list(unexplained(job_form())) == [""]  # the form as a whole needs no explanation


def test_a_field_without_an_explanation_is_found():
    assert "inner.mute" in set(unexplained(later_form()))


@pytest.mark.parametrize("kind", KINDS)
def test_presets_are_valid_in_what_they_set(kind: str):
    assert PRESETS[kind]
    for preset in PRESETS[kind]:
        texts = texts_of(job_form(), SPECIFICATIONS[kind]) | preset_texts(kind, preset.key)
        told = _SPECS.validate_python(spec_of(job_form(), texts)).model_dump(mode="json")
        assert _holds(told, json.loads(json.dumps(preset.spec))), preset.key


@pytest.mark.parametrize("kind", KINDS)
def test_a_preset_leaves_nothing_of_the_one_that_was_pressed_before(kind: str):
    typed = texts_of(job_form(), SPECIFICATIONS[kind])
    for before, after in product(PRESETS[kind], repeat=2):
        both = typed | preset_texts(kind, before.key) | preset_texts(kind, after.key)
        told = spec_of(job_form(), both)
        assert told == spec_of(job_form(), typed | preset_texts(kind, after.key)), (before.key, after.key)


def unexplained(node: Node) -> Iterator[str]:
    if not node.help:
        yield node.name
    match node:
        case Group():
            below: tuple[Node, ...] = node.members
        case Switch():
            below = (node.group,)
        case Choice():
            below = tuple(node.options.values())
        case Rows():
            below = (node.row,)
        case Leaf():
            below = ()
    for member in below:
        yield from unexplained(member)


def _reaching(node: Node, name: str) -> dict[str, str]:
    """The choices under which a field is on the page."""
    found: dict[str, str] = {}
    below: list[Node] = list(node.members) if isinstance(node, Group) else []
    if isinstance(node, Choice):
        for tag, option in node.options.items():
            if node.name and name in set(names_of(option)):
                found[node.tag_name] = tag
            below.append(option)
    if isinstance(node, Switch):
        found[node.name] = ON
        below.append(node.group)
    for member in below:
        found = _reaching(member, name) | found
    return found


def _holds(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(_holds(whole[key], value) for key, value in part.items())
    return bool(whole == part)
