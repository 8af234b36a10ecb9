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
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from gpu_runtime.placement.roles import LocalRuntime
from tests.benchmarks.policy_recipes import ENV_STEPS_MAX, RECIPES, RL_RECIPES
from tests.benchmarks.policy_runs import Played, Trained, demonstrations, play, rl_job, run_job, sft_job
from tests.support.runtime import make_config, running

NAMES = [*RECIPES, *RL_RECIPES]
HEADER = (
    f"{'policy':<14}{'seed':>5}{'success':>10}{'95 %':>16}{'mark':>8}{'steps':>8}{'train s':>9}{'play s':>8}"
    f"{'env steps':>11}{'per s':>7}"
)


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
    env_steps: int  # of reinforcement learning

    @classmethod
    def of(
        cls,
        name: str,
        seed: int,
        trained: Trained,
        played: Played,
        *,
        title: str,
        least: float = 0.0,
        most: float = 1.0,
    ) -> "Row":
        success = played.success
        assert success.low is not None
        assert success.high is not None
        return cls(
            name=name,
            seed=seed,
            title=title,
            successes=success.successes,
            episodes=success.episodes,
            low=success.low,
            high=success.high,
            least=least,
            most=most,
            mean_steps=played.mean_steps,
            train_s=trained.train_s,
            play_s=played.wall_s,
            env_steps=int(trained.metrics.get("rollout/env_steps", 0)),
        )

    @property
    def holds(self) -> bool:
        return self.least <= self.successes / self.episodes <= self.most and self.env_steps <= ENV_STEPS_MAX

    def line(self) -> str:
        mark = f">= {self.least:.0%}" if self.most == 1 else f"<= {self.most:.0%}"
        interval, steps = f"[{self.low:.2f}, {self.high:.2f}]", f"{self.mean_steps:.1f}"
        return (
            f"{self.name:<14}{self.seed:>5}{f'{self.successes}/{self.episodes}':>10}{interval:>16}{mark:>8}{steps:>8}"
            f"{self.train_s:>9.1f}{self.play_s:>8.1f}"
            + (f"{self.env_steps:>11}{self.env_steps / self.train_s:>7.0f}" if self.env_steps else "")
            + ("" if self.holds else "  MISSED")
        )


async def sft_row(name: str, seed: int, options: argparse.Namespace) -> Row:
    """Record, train, play."""
    recipe = RECIPES[name]
    async with _runtime(name, seed, options) as runtime:
        trained = await _imitate(runtime, name, seed, options)
    played = await play(recipe, trained.adapter, parallel=options.parallel)
    return Row.of(name, seed, trained, played, title=recipe.title, least=recipe.least, most=recipe.most)


async def rl_rows(name: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """The start and what became of it, on the same fresh episodes."""
    recipe = RL_RECIPES[name]
    begin = RECIPES[recipe.start]
    async with _runtime(name, seed, options) as runtime:
        start = await _imitate(runtime, recipe.start, seed, options)
        trained = await run_job(runtime, rl_job(name, recipe, start.binding, seed=seed))
    before = await play(begin, start.adapter, parallel=options.parallel)
    after = await play(begin, trained.adapter, parallel=options.parallel)
    least = before.success.successes / before.success.episodes + recipe.gain
    return [
        Row.of(recipe.start, seed, start, before, title=begin.title, most=begin.most),
        Row.of(name, seed, trained, after, title=recipe.title, least=least),
    ]


async def rows_of(name: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """The lines of one policy."""
    return await rl_rows(name, seed, options) if name in RL_RECIPES else [await sft_row(name, seed, options)]


def _runtime(name: str, seed: int, options: argparse.Namespace) -> AbstractAsyncContextManager[LocalRuntime]:
    """A fresh one; what an earlier run left is removed."""
    state = options.work / "runs" / f"{name}-{seed}"
    shutil.rmtree(state, ignore_errors=True)
    (options.work / "datasets").mkdir(parents=True, exist_ok=True)
    return running(make_config(state, options.work / "datasets"))


async def _imitate(runtime: LocalRuntime, name: str, seed: int, options: argparse.Namespace) -> Trained:
    recipe = RECIPES[name]
    binding = await asyncio.to_thread(demonstrations, recipe, options.work)
    return await run_job(runtime, sft_job(name, recipe, binding, seed=seed))


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="of training; one line each")
    parser.add_argument("--work", type=Path, default=Path(".state/bench_policies"), help="recordings are kept there")
    parser.add_argument("--parallel", type=int, default=2, help="episodes side by side, one process each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the lines there as well")
    return parser.parse_args(argv)


def main() -> int:
    options = read_options()
    options.work = options.work.resolve()
    torch.set_num_threads(1)
    rows: list[Row] = []
    print(HEADER, flush=True)
    for name in options.only:
        for seed in options.seeds:
            found = asyncio.run(rows_of(name, seed, options))
            print("\n".join(row.line() for row in found), flush=True)
            rows += found
    if options.json:
        told = [{field: getattr(row, field) for field in row.__slots__} | {"holds": row.holds} for row in rows]
        options.json.write_text(json.dumps(told, indent=2))
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
