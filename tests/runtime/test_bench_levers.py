"""The bench of the levers: what its file holds, and that its timing takes turns. No test asserts a time."""

import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks import bench_levers, lever_group, lever_sft
from tests.benchmarks.figures import Figure
from tests.benchmarks.grids import SMALL, TINY, Cell
from tests.benchmarks.interleaved import Timing, interleave
from tests.benchmarks.report import as_json, table

KEYS = {
    "sft_step_epoch2", "sft_step_epoch1_min", "grouped_forward", "ppo_handles", "lora_8x1", "fused_dit_8x4",
    "machine", "settings", "figures",
}  # fmt: skip


def figure(key: str, base: str, ratio: float, **details: object) -> Figure:
    """Levers take 10 ms of CPU time and 20 ms of wall time; the plain path ``ratio`` and twice ``ratio`` as long."""
    return Figure(
        key=key,
        base=base,
        work="8x4",
        plain=Timing(cpu_ms=10 * ratio, wall_ms=40 * ratio),
        levers=Timing(cpu_ms=10, wall_ms=20),
        repetitions=3,
        details=details,
    )


EVERYTHING = (
    figure("sft_step_epoch2", TINY, 5.0),
    figure("sft_step_epoch2", TINY, 2.0, noise_draws=8),
    figure("sft_step_epoch2", SMALL, 16.0),
    figure("sft_step_epoch1", TINY, 1.2),
    figure("sft_step_epoch1", SMALL, 1.1),
    figure("grouped_forward", TINY, 1.5, tenants=8, batch=1, ragged=False),
    figure("ppo_handles", SMALL, 6.0),
    figure("lora_8x1", TINY, 2.6),
    figure("fused_dit_8x4", TINY, 1.8),
)


def test_the_file_holds_the_published_keys_and_the_right_figure_under_each():
    found = as_json(EVERYTHING, machine={}, settings={})
    assert set(found) == KEYS
    assert found["sft_step_epoch2"] == {"tiny": 5.0, "small": 16.0}
    assert found["sft_step_epoch1_min"] == 1.1
    assert found["grouped_forward"] == [{"base": TINY, "tenants": 8, "batch": 1, "ragged": False, "ratio": 1.5}]
    assert (found["ppo_handles"], found["lora_8x1"]) == ({"small": 6.0}, {"tiny": 2.6})
    assert found["fused_dit_8x4"] == 1.8
    assert len(found["figures"]) == len(EVERYTHING)


def test_a_ratio_is_by_processor_time_and_on_an_accelerator_by_wall_time():
    timed = {"plain": Timing(cpu_ms=30, wall_ms=80), "levers": Timing(cpu_ms=10, wall_ms=20), "repetitions": 1}
    assert Figure(key="lora_8x1", base=TINY, work="8x1", **timed).ratio == 3
    assert Figure(key="lora_8x1", base=TINY, work="8x1", device="cuda", **timed).ratio == 4


def test_the_table_has_a_row_for_each_figure_and_the_extremes_of_a_grid():
    cells = [figure("sft_step_epoch1", TINY, ratio) for ratio in (1.4, 1.05, 1.3)]
    rows = table([*EVERYTHING[:3], *cells]).splitlines()
    assert len(rows) == 2 + 3 + 2
    assert "1.05" in rows[5]
    assert "least of 3 cells" in rows[5]
    assert "1.40" in rows[6]
    assert len({row.count("|") for row in rows}) == 1


def test_both_sides_take_turns_and_each_is_set_up_before_its_own():
    order: list[str] = []
    interleave(
        lambda: order.append("A"),
        lambda: order.append("B"),
        repetitions=2,
        before_first=lambda: order.append("a"),
        before_second=lambda: order.append("b"),
    )
    assert "".join(order) == "aAbB" * 3, "one warm-up and two turns"


def test_a_quick_run_measures_steps_and_forwards_and_writes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cell = Cell(tenants=2, batch=1)
    for module in (lever_group, lever_sft):
        monkeypatch.setattr(module, "grid", lambda base, quick: (cell,))
    only = ["sft_step_epoch1", "grouped_forward"]
    arguments = ["--quick", "--repetitions", "1", "--bases", TINY, "--json", str(tmp_path / "file"), "--only", *only]
    monkeypatch.setattr(sys, "argv", ["bench_levers", *arguments])
    bench_levers.main()
    found = json.loads((tmp_path / "file").read_text())
    assert set(found) == KEYS
    assert found["sft_step_epoch1_min"] > 0
    assert {(row["tenants"], row["batch"], row["ragged"]) for row in found["grouped_forward"]} == {
        (2, 1, False),
        (2, 1, True),
    }
    assert "| SFT step, first epoch | `tiny-qwen3-vl` |" in capsys.readouterr().out
