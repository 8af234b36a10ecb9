"""The base models a deployment keeps resident, as both tiers know them."""

from dataclasses import dataclass

DEFAULT_BASE_MODELS = "tiny-qwen3-vl,small-qwen3-vl"
BUILT_IN_BASES = frozenset({"tiny-qwen3-vl", "small-qwen3-vl"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelEntry:
    """``source`` is a built-in configuration, a local folder or a hub id."""

    name: str
    source: str

    @property
    def random_weights(self) -> bool:
        """True for the built-in test bases: everything they produce is labelled "random weights"."""
        return self.source in BUILT_IN_BASES


def parse_base_models(text: str) -> dict[str, BaseModelEntry]:
    """Read ``name`` or ``name=source``, separated by commas (environment ``JOYNEXUS_BASE_MODELS``).

    Raises ValueError naming the entry that has an empty name, an empty source or a repeated name.
    """
    entries: dict[str, BaseModelEntry] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, source = item.partition("=")
        if not name.strip() or ("=" in item and not source.strip()):
            raise ValueError(f"base model entry {item!r}: expected NAME or NAME=SOURCE")
        if "=" not in item and name not in BUILT_IN_BASES:
            raise ValueError(f"base model entry {item!r}: not built in ({sorted(BUILT_IN_BASES)}), give NAME=SOURCE")
        if name.strip() in entries:
            raise ValueError(f"base model {name!r} is listed twice")
        entries[name.strip()] = BaseModelEntry(name=name.strip(), source=source.strip() or name.strip())
    return entries
