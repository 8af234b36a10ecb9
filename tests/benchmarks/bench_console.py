"""How quick is the page of a job with a million points, and what do its kept buckets cost when points are told?

1. A real platform with one job of 10 x 100,000 points, one of them a spike, in a real Chromium: time until the first
   charts are drawn and answer, the request for the curves, and each live redraw of the charts on screen.
2. The same journal taken in with buckets and without, in turns.

Every figure is a median. Run ``python -m tests.benchmarks.bench_console``; ``--only ingest`` needs no browser.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.bench_billing import prepare

CHROMIUM = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
DRAWN = """window.drawn = [];
addEventListener("joynexus:drawn", (event) => window.drawn.push({at: performance.now(), ...event.detail}));"""
REQUEST = """() => performance.getEntriesByType("resource").find((e) => e.name.includes("/metrics?"))?.duration"""
SEED = 'from tests.support.many_points import seed; seed("{job}", steps={steps})'


def main() -> int:
    arguments = _arguments()
    prepare()
    figures: dict[str, Any] = {}
    if arguments.only != "ingest":
        figures |= _page(arguments)
    if arguments.only != "page":
        figures |= _ingest(arguments)
    print(_table(figures), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def _page(arguments: argparse.Namespace) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    from tests.browser.played import played_platform
    from tests.support.many_points import SERIES

    with tempfile.TemporaryDirectory(prefix="bench-console-") as folder, played_platform(Path(folder)) as platform:
        key = platform.start(platform.sft_spec("a million points", steps=1_000_000))
        began_s = time.perf_counter()
        platform.stack.manage("shell", "-c", SEED.format(job=key[0], steps=arguments.steps))
        seeded_s = time.perf_counter() - began_s
        with sync_playwright() as running:
            browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM))
            page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
            _log_in(page, platform)
            page.add_init_script(DRAWN)
            url = f"{platform.stack.url}/jobs/{key[0]}/?tab=charts"
            opened = [_open(page, url) for _ in range(arguments.runs)]
            with _telling(platform, key, first=arguments.steps + 2, names=SERIES):
                live = _live(page, seconds=arguments.seconds)
            browser.close()
    return {
        "points": arguments.steps * len(SERIES),
        "seeded_s": round(seeded_s, 1),
        "interactive_ms": round(median(one["interactive"] for one in opened)),
        "metrics_request_ms": round(median(one["request"] for one in opened)),
        "live_slice_ms": round(median(one["ms"] for one in live), 1),
        "live_slice_worst_ms": round(max(one["ms"] for one in live), 1),
        "live_redraw_ms": round(median(sum(one["ms"] for one in redraw) for redraw in _redraws(live)), 1),
        "charts_per_redraw": median(sum(one["charts"] for one in redraw) for redraw in _redraws(live)),
        "redraws": len(_redraws(live)),
    }


def _log_in(page: Any, platform: Any) -> None:
    page.goto(f"{platform.stack.url}/login/")
    page.get_by_label("E-mail").fill(platform.lab["email"])
    page.get_by_label("Password").fill(platform.lab["password"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login" not in url)


def _open(page: Any, url: str) -> dict[str, float]:
    """From the click to the first charts being drawn and a task of the page's own getting its turn."""
    page.goto(url)
    page.wait_for_function("() => window.drawn.length > 0")
    interactive = page.evaluate(
        """() => new Promise((done) => {
            const wait = () => { // until what is on screen is drawn, and the page would answer a click
                const on = [...document.querySelectorAll("[data-chart]")].filter((e) => {
                    const box = e.getBoundingClientRect();
                    return box.height > 0 && box.top < innerHeight && box.bottom > 0;
                });
                if (on.every((e) => e.data)) done(Math.max(...window.drawn.map((d) => d.at)));
                else setTimeout(wait, 0);
            };
            wait();
        })"""
    )
    return {"interactive": interactive, "request": page.evaluate(REQUEST)}


def _live(page: Any, *, seconds: float) -> list[dict[str, float]]:
    page.wait_for_timeout(3000)  # what was late for the first drawing
    page.evaluate("() => { window.drawn = []; }")
    page.wait_for_timeout(1000 * seconds)
    live: list[dict[str, float]] = page.evaluate("() => window.drawn")
    if not live:
        raise RuntimeError("no live redraw was seen")
    return live


def _redraws(live: list[dict[str, float]]) -> list[list[dict[str, float]]]:
    """What was drawn for one update: slices that follow each other within half the second between two updates."""
    redraws: list[list[dict[str, float]]] = []
    for one in live:
        if redraws and one["at"] - redraws[-1][-1]["at"] < 500:
            redraws[-1].append(one)
        else:
            redraws.append([one])
    return redraws


@contextmanager
def _telling(platform: Any, key: tuple[str, int], *, first: int, names: tuple[str, ...]) -> Iterator[None]:
    """A point in every series, four times a second."""
    from gpu_runtime.protocol.messages import MetricsRecorded

    ended = threading.Event()

    def tell() -> None:
        step = first
        while not ended.wait(0.25):
            platform.runtime.tell(*key, MetricsRecorded(step=step, values=dict.fromkeys(names, 0.4 + step % 7 / 50)))
            step += 1

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _ingest(arguments: argparse.Namespace) -> dict[str, Any]:
    """Journals of a job with eleven series, in batches of some steps: points a second, of time and of own CPU time.

    A busy machine changes the second less.
    """
    figures: dict[str, Any] = {}
    for steps in (1, 16, 250):
        plain, kept = _in_turns(steps, runs=arguments.runs)
        for name, side in (("plain", plain), ("buckets", kept)):
            figures[f"ingest_{steps}_{name}_per_s"] = round(median(wall for wall, _ in side))
            figures[f"ingest_{steps}_{name}_per_cpu_s"] = round(median(cpu for _, cpu in side))
        figures[f"ingest_{steps}_cpu_ratio"] = round(median(cpu for _, cpu in kept) / median(c for _, c in plain), 2)
    return figures


Rates = list[tuple[float, float]]


def _in_turns(steps: int, *, runs: int) -> tuple[Rates, Rates]:
    """Rates without buckets and with them, A B A B, after one of each to warm up."""
    from jobs.services import ingest_rows

    told = ingest_rows.points_add
    rates: tuple[Rates, Rates] = ([], [])
    world = _World()
    for run in range(runs + 1):
        for side, add in enumerate((_plain, told)):
            ingest_rows.points_add = add
            try:
                rate = world.rates(steps, batches=max(2, min(60, 500 // steps)))
            finally:
                ingest_rows.points_add = told
            if run:
                rates[side].append(rate)
    return rates


def _plain(points: Any) -> None:
    """How points were stored before there were buckets."""
    from jobs.models import MetricPoint

    MetricPoint.objects.bulk_create(points, ignore_conflicts=True, batch_size=500)


class _World:
    """A lab whose jobs tell eleven series."""

    def __init__(self) -> None:
        from tests.support.factories import TenantFactory
        from tests.support.story import make_person

        name = f"bench-{time.time_ns()}"
        self.person = make_person(name, TenantFactory(name=name), "owner")

    def rates(self, steps: int, *, batches: int) -> tuple[float, float]:
        """Of a new job whose journal comes in ``batches`` of ``steps`` entries."""
        from gpu_runtime.protocol.messages import EventBatch, MetricsRecorded
        from jobs.services.ingest import batch_apply
        from tests.support.jobs import relay_all, start_job
        from tests.support.memory_runtime import InMemoryRuntime

        runtime = InMemoryRuntime()
        _, key = start_job(self.person, runtime)
        relay_all(runtime)
        before, names = len(runtime.journal), [f"train/series_{i}" for i in range(11)]
        for step in range(1, steps * batches + 1):
            runtime.tell(*key, MetricsRecorded(step=step, values=dict.fromkeys(names, 1.0 / step)))
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for after in range(before, len(runtime.journal), steps):
            events = tuple(runtime.journal[after : after + steps])
            batch_apply(
                EventBatch(journal_id=runtime.journal_id, events=events, last_seq=len(runtime.journal)), after=after
            )
        points = steps * batches * len(names)
        return points / (time.perf_counter() - began_s), points / (time.process_time() - began_cpu_s)


def _table(figures: dict[str, Any]) -> str:
    return "\n".join(f"{name:>26}  {value}" for name, value in figures.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--runs", type=int, default=5, help="of each measurement")
    parser.add_argument("--steps", type=int, default=100_000, help="points of each of ten series")
    parser.add_argument("--seconds", type=float, default=15.0, help="of live redraws")
    parser.add_argument("--only", choices=("page", "ingest"), help="half of it")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
