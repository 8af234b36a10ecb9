"""Any specification that is valid, made from the form's own tree, so that a new field is tried without code here."""

from typing import Any

from hypothesis import strategies as st

from frontend.forms.nodes import Choice, Group, Leaf, LeafType, Node, Rows, Switch
from frontend.forms.schema import job_form

_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)
_NAME = r"[A-Za-z0-9_.-]{1,12}"
# What fields of several models agree on; the bounds of one field are in its schema.
_AGREED: dict[str, st.SearchStrategy[Any]] = {
    "head.heads": st.sampled_from([1, 2, 4, 12]),
    "head.width": st.integers(1, 170).map(lambda number: number * 24),
    "exploration.log_std_init": st.floats(-4, 0),
    "exploration.log_std_min": st.floats(-10, -4),
    "exploration.log_std_max": st.floats(0, 2),
    "exploration.std_min": st.floats(0.001, 0.07),
    "exploration.std_max": st.floats(0.2, 1),
    "algorithm.filter_low": st.none(),
    "algorithm.filter_high": st.none(),
    "algorithm.group_size": st.sampled_from([2, 4, 8]),
    "algorithm.value.per_step": st.just(False),
    "collection.processes": st.none() | st.integers(1, 4),
    "collection.seats": st.integers(4, 256),
    "collection.episodes": st.integers(1, 100).map(lambda number: number * 8),
    "episodes": st.integers(1, 100),
    "max_attempts": st.none() | st.integers(100, 1_000_000),
    "first_seed": st.integers(0, 10**6),
    "tags": st.lists(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,9}", fullmatch=True), max_size=5, unique=True),
}


def any_spec(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Specifications of one kind, with any of their optional fields set."""
    return _group(job_form().options[kind], {"kind": kind}).map(_agreeing)


def _node(node: Node) -> st.SearchStrategy[Any]:
    match node:
        case Leaf():
            return _AGREED.get(node.name, _leaf(node))
        case Switch():
            return st.none() | _node(node.group)
        case Choice():
            return st.one_of([_group(option, {node.tag: tag}) for tag, option in node.options.items()])
        case Rows():
            return st.lists(_node(node.row), min_size=node.fewest, max_size=3, unique_by=lambda row: row["id"])
    return _group(node, {})


def _group(group: Group, given: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    parts = {member.name.rpartition(".")[2]: member for member in group.members}
    needed = {key: _node(member) for key, member in parts.items() if member.required}
    others = {key: _node(member) for key, member in parts.items() if not member.required}
    return st.fixed_dictionaries(needed, optional=others).map(lambda found: given | found)


def _leaf(leaf: Leaf) -> st.SearchStrategy[Any]:
    found = _value(leaf.type, leaf.says, leaf)
    return st.none() | found if leaf.nullable else found


def _value(kind: LeafType, says: dict[str, Any], leaf: Leaf) -> st.SearchStrategy[Any]:
    match kind:
        case LeafType.FLAG:
            return st.booleans()
        case LeafType.CHOICE:
            return st.sampled_from(leaf.choices)
        case LeafType.INTEGER:
            return _integers(says)
        case LeafType.NUMBER:
            return _numbers(says)
        case LeafType.LIST:
            item = says["items"] if "items" in says else says["prefixItems"][0]
            few, many = says.get("minItems", 0), min(says.get("maxItems", 4), 4)
            one = st.sampled_from(leaf.choices) if leaf.choices else _value(leaf.item, item, leaf)
            return st.lists(one, min_size=few, max_size=many)
        case LeafType.MAP:
            return st.dictionaries(_TEXT.filter(bool), st.from_regex(_NAME, fullmatch=True), max_size=3)
        case LeafType.TEXT:
            return _texts(says)


def _integers(says: dict[str, Any]) -> st.SearchStrategy[int]:
    every = says.get("multipleOf", 1)
    low, high = says.get("minimum", 0), says.get("maximum", 2**31 - 1)
    return st.integers(-(-low // every), high // every).map(lambda number: number * every)


def _numbers(says: dict[str, Any]) -> st.SearchStrategy[float]:
    low, high = says.get("minimum", says.get("exclusiveMinimum")), says.get("maximum", says.get("exclusiveMaximum"))
    return st.floats(
        low,
        high,
        exclude_min="exclusiveMinimum" in says,
        exclude_max="exclusiveMaximum" in says,
        allow_nan=False,
        allow_infinity=False,
    )


def _texts(says: dict[str, Any]) -> st.SearchStrategy[str]:
    least, most = says.get("minLength", 0), says.get("maxLength", 1000)
    found = st.from_regex(says["pattern"], fullmatch=True) if "pattern" in says else _TEXT
    return found.filter(lambda text: least <= len(text) <= most and "\n" not in text[-1:])


def _agreeing(spec: dict[str, Any]) -> dict[str, Any]:
    """What only some algorithms allow is put right."""
    algorithm = spec.get("algorithm", {}).get("type")
    if algorithm == "reinforce":
        spec = spec | {"training": spec["training"] | {"epochs": 1}}
        spec["collection"] = spec.get("collection", {}) | {"max_staleness": 0}
    if algorithm in ("grpo", "reinforce"):
        spec = spec | {"training": spec["training"] | {"value_warmup": 0}}
    return spec
