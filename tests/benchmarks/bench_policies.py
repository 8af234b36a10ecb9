"""Policies that must work: trained through the platform's own jobs, judged on 50 fresh episodes in the simulator.

Run ``python -m tests.benchmarks.bench_policies`` (``make bench BENCH=bench_policies``). Exit status 1: one of them
missed its mark.
"""

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.benchmarks.policy_recipes import RECIPES, Recipe
from tests.benchmarks.policy_runs import Played, Trained, demonstrations, play, run_job, sft_job
from tests.support.runtime import make_config, running

HEADER = f"{'policy':<14}{'seed':>5}{'success':>10}{'95 %':>16}{'mark':>8}{'steps':>8}{'train s':>9}{'play s':>8}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str
    seed: int
    title: str
    successes: int
    episodes: int
    low: float
    high: float
    least: float
    most: float
    mean_steps: float | None
    train_s: float
    play_s: float

    @classmethod
    def of(cls, name: str, seed: int, recipe: Recipe, trained: Trained, played: Played) -> "Row":
        success = played.success
        assert success.low is not None
        assert success.high is not None
        return cls(
            name=name,
            seed=seed,
            title=recipe.title,
            successes=success.successes,
            episodes=success.episodes,
            low=success.low,
            high=success.high,
            least=recipe.least,
            most=recipe.most,
            mean_steps=played.mean_steps,
            train_s=trained.train_s,
            play_s=played.wall_s,
        )

    @property
    def holds(self) -> bool:
        return self.least <= self.successes / self.episodes <= self.most

    def line(self) -> str:
        mark = f">= {self.least:.0%}" if self.most == 1 else f"<= {self.most:.0%}"
        interval, steps = f"[{self.low:.2f}, {self.high:.2f}]", f"{self.mean_steps:.1f}"
        return (
            f"{self.name:<14}{self.seed:>5}{f'{self.successes}/{self.episodes}':>10}{interval:>16}{mark:>8}{steps:>8}"
            f"{self.train_s:>9.1f}{self.play_s:>8.1f}{'' if self.holds else '  MISSED'}"
        )


async def sft_row(name: str, seed: int, options: argparse.Namespace) -> Row:
    """Record, train, play."""
    recipe = RECIPES[name]
    binding = demonstrations(recipe, options.work)
    state = options.work / "runs" / f"{name}-{seed}"
    shutil.rmtree(state, ignore_errors=True)
    async with running(make_config(state, options.work / "datasets")) as runtime:
        trained = await run_job(runtime, sft_job(name, recipe, binding, seed=seed))
    return Row.of(name, seed, recipe, trained, await play(recipe, trained.adapter, parallel=options.parallel))


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="of training; one line each")
    parser.add_argument("--work", type=Path, default=Path(".state/bench_policies"), help="recordings are kept there")
    parser.add_argument("--parallel", type=int, default=2, help="episodes side by side, one process each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the lines there as well")
    return parser.parse_args(argv)


def main() -> int:
    options = read_options()
    options.work = options.work.resolve()
    torch.set_num_threads(1)
    rows = []
    print(HEADER, flush=True)
    for name in options.only:
        for seed in options.seeds:
            rows.append(asyncio.run(sft_row(name, seed, options)))
            print(rows[-1].line(), flush=True)
    if options.json:
        told = [{field: getattr(row, field) for field in row.__slots__} | {"holds": row.holds} for row in rows]
        options.json.write_text(json.dumps(told, indent=2))
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
