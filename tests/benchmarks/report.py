"""Figures as one Markdown table and as one JSON file."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.figures import Figure, short

ROWS = {
    "sft_step_epoch2": "SFT step, from the second epoch",
    "sft_step_epoch1": "SFT step, first epoch",
    "grouped_forward": "forward only, grouped",
    "ppo_handles": "PPO update with feature handles",
    "lora_8x1": "LoRA step, grouped",
    "fused_dit_8x4": "DiT heads, stacked",
}
HEADER = ("figure", "base", "work", "plain, CPU ms", "levers, CPU ms", "ratio", "wall ratio")
GRIDS = ("sft_step_epoch1", "grouped_forward")  # of these the table has the extremes, the file every cell


def progress(figure: Figure) -> str:
    """One line while it runs."""
    return (
        f"{figure.key:<18}{short(figure.base or ''):<7}{figure.work:<34}{figure.plain.cpu_ms:>10.1f}"
        f"{figure.levers.cpu_ms:>10.1f} CPU ms{figure.cpu_ratio:>7.2f}{figure.wall_ratio:>7.2f} wall"
        f"{figure.repetitions:>4} turns"
    )


def table(figures: Sequence[Figure]) -> str:
    """The README's table."""
    rows = [HEADER, ("---",) * len(HEADER)]
    for key in ROWS:
        found = [figure for figure in figures if figure.key == key]
        rows += _extremes(found) if key in GRIDS else [_row(figure, figure.work) for figure in found]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _extremes(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """Per base and kind of lengths, the cell with the smallest ratio and the one with the largest."""
    rows = []
    for base, ragged in dict.fromkeys((figure.base, figure.details.get("ragged")) for figure in figures):
        same = [f for f in figures if (f.base, f.details.get("ragged")) == (base, ragged)]
        for word, chosen in (("least", min(same, key=_ratio)), ("most", max(same, key=_ratio))):
            rows.append(_row(chosen, f"{chosen.work} ({word} of {len(same)} cells)"))
    return rows


def _row(figure: Figure, work: str) -> tuple[str, ...]:
    return (
        ROWS[figure.key],
        f"`{figure.base}`" if figure.base else "",
        work,
        f"{figure.plain.cpu_ms:.1f}",
        f"{figure.levers.cpu_ms:.1f}",
        f"{figure.cpu_ratio:.2f}",
        f"{figure.wall_ratio:.2f}",
    )


def as_json(figures: Sequence[Figure], *, machine: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The ratios under their fixed names; a figure that was not measured is absent from its object, or null."""
    first_epoch = [figure.ratio for figure in figures if figure.key == "sft_step_epoch1"]
    return {
        "sft_step_epoch2": _by_base(figures, "sft_step_epoch2"),
        "sft_step_epoch1_min": min(first_epoch, default=None),
        "grouped_forward": [
            {"base": figure.base, "ratio": figure.ratio}
            | {name: figure.details[name] for name in ("tenants", "batch", "ragged")}
            for figure in figures
            if figure.key == "grouped_forward"
        ],
        "ppo_handles": _by_base(figures, "ppo_handles"),
        "lora_8x1": _by_base(figures, "lora_8x1"),
        "fused_dit_8x4": next((figure.ratio for figure in figures if figure.key == "fused_dit_8x4"), None),
        "machine": dict(machine),
        "settings": dict(settings),
        "figures": [figure.to_json() for figure in figures],
    }


def _by_base(figures: Sequence[Figure], key: str) -> dict[str, float]:
    """``{"tiny": ratio}``; the first figure of a base is the one that is asked for."""
    found = {}
    for figure in figures:
        if figure.key == key and figure.base is not None:
            found.setdefault(short(figure.base), figure.ratio)
    return found


def _ratio(figure: Figure) -> float:
    return figure.ratio
