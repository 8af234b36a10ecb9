"""From the JSON schema of the specifications to a form: the tree of ``frontend.forms.nodes``."""

from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from frontend.forms.nodes import Choice, Group, Leaf, LeafType, Node, Rows, Switch, joined
from gpu_runtime.protocol.job_specs import JobSpec

Schema = dict[str, Any]
_SCALARS = {
    "string": LeafType.TEXT,
    "integer": LeafType.INTEGER,
    "number": LeafType.NUMBER,
    "boolean": LeafType.FLAG,
}


@lru_cache(maxsize=1)
def job_form() -> Choice:
    """The form of a job; its kind is the outermost choice."""
    form = form_of(JobSpec)
    assert isinstance(form, Choice)
    return form


def form_of(kind: Any) -> Node:
    """The form of any model or discriminated union. Raises TypeError naming a field it cannot show."""
    schema = TypeAdapter(kind).json_schema()
    return _Reader(schema.get("$defs", {})).node("", "", schema, required=True, default=None, own_default=None)


class _Reader:
    """Follows references within one schema."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self.definitions = definitions

    def node(self, name: str, key: str, schema: Schema, *, required: bool, default: Any, own_default: Any) -> Node:
        """``default`` as the whole group has it, else the field's own."""
        schema, nullable = self._resolved(schema)
        label, help_ = schema.get("x-label") or _humanised(key), schema.get("description", "")
        if "discriminator" in schema:
            return self._choice(name, label, help_, schema, required=required)
        if "properties" in schema:
            if nullable:
                return self._switch(name, label, help_, schema, needs_a_value=required or default is not None)
            return self._group(name, label, help_, schema, required=required, default=default)
        items = self._resolved(schema["items"])[0] if "items" in schema else {}
        if "properties" in items:
            return self._rows(name, label, help_, schema, items, required=required)
        return Leaf(
            name=name,
            label=label,
            help=help_,
            unit=schema.get("x-unit", ""),
            required=required,
            nullable=nullable,
            default=default,
            own_default=own_default,
            choices=tuple(schema.get("enum") or items.get("enum", ())),
            says=schema,
            **self._type_of(name, schema, items),
        )

    def _resolved(self, schema: Schema) -> tuple[Schema, bool]:
        """References and "or null" are gone; what stands beside a reference goes before what it refers to."""
        nullable, beside = False, dict(schema)
        while "$ref" in beside or "anyOf" in beside:
            if "$ref" in beside:
                target = self.definitions[beside.pop("$ref").rpartition("/")[2]]
            else:
                options = beside.pop("anyOf")
                inner = [option for option in options if option.get("type") != "null"]
                nullable = nullable or len(inner) < len(options)
                if len(inner) != 1:
                    raise TypeError(f"a field of {len(inner)} types needs a discriminator: {options}")
                target = inner[0]
            beside = target | beside
        return beside, nullable

    def _group(self, name: str, label: str, help_: str, schema: Schema, *, required: bool, default: Any) -> Group:
        members = []
        needed, whole = set(schema.get("required", ())), default or {}
        for key, field in schema["properties"].items():
            if "const" in field:  # the tag of a choice
                continue
            own = field.get("default")
            members.append(
                self.node(
                    joined(name, key),
                    key,
                    field,
                    required=key in needed,
                    default=whole.get(key, own),
                    own_default=own,
                )
            )
        return Group(name=name, label=label, help=help_, required=required, members=tuple(members))

    def _switch(self, name: str, label: str, help_: str, schema: Schema, *, needs_a_value: bool) -> Switch:
        if needs_a_value:
            raise TypeError(f"{name}: a group that may be null must be null by default")
        group = self._group(name, label, schema.get("description", ""), schema, required=True, default=None)
        return Switch(name=name, label=label, help=help_, group=group)

    def _choice(self, name: str, label: str, help_: str, schema: Schema, *, required: bool) -> Choice:
        """Options in the order of the union; its mapping is sorted by name."""
        told, options = schema["discriminator"], {}
        tags = {reference: tag for tag, reference in told["mapping"].items()}
        for reference in (option["$ref"] for option in schema["oneOf"]):
            tag, target = tags[reference], self.definitions[reference.rpartition("/")[2]]
            title = target.get("x-label") or _humanised(tag)
            group = self._group(name, title, target.get("description", ""), target, required=True, default=None)
            options[tag] = group
        return Choice(name=name, label=label, help=help_, required=required, tag=told["propertyName"], options=options)

    def _rows(self, name: str, label: str, help_: str, schema: Schema, items: Schema, *, required: bool) -> Rows:
        row = self._group(joined(name, 0), label, items.get("description", ""), items, required=True, default=None)
        fewest, most = schema.get("minItems", 0), schema.get("maxItems", 100)
        return Rows(name=name, label=label, help=help_, required=required, row=row, fewest=fewest, most=most)

    def _type_of(self, name: str, schema: Schema, items: Schema) -> dict[str, LeafType]:
        kind = schema.get("type")
        if "enum" in schema:
            return {"type": LeafType.CHOICE}
        if kind == "array":
            of = items or self._resolved(schema["prefixItems"][0])[0]
            return {"type": LeafType.LIST, "item": _SCALARS[of["type"]]}
        if kind == "object" and schema.get("additionalProperties", {}).get("type") == "string":
            return {"type": LeafType.MAP}
        if kind not in _SCALARS:
            raise TypeError(f"{name}: no field for {schema}")
        return {"type": _SCALARS[kind]}


def _humanised(key: str) -> str:
    return key.replace("_", " ").capitalize()
