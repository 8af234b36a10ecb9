"""What every lever saves: the same work on the plain path and with the lever, in turns, one table.

CPU milliseconds of the whole process, wall beside them, medians; ratios are plain over levers, by CPU time (on an
accelerator by wall time until it has finished). Run ``python -m tests.benchmarks.bench_levers`` (``make bench``).
"""

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path

import torch

from gpu_runtime.protocol.catalog import BUILT_IN_BASES
from tests.benchmarks.figures import Figure, Setting
from tests.benchmarks.grids import SMALL, TINY
from tests.benchmarks.lever_figures import LEVERS, Bases
from tests.benchmarks.report import as_json, progress, table


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there as well")
    parser.add_argument("--quick", action="store_true", help="fewer cells and repetitions: under 4 minutes")
    parser.add_argument("--only", nargs="+", choices=list(LEVERS), metavar="NAME", help=", ".join(LEVERS))
    parser.add_argument("--bases", nargs="+", choices=sorted(BUILT_IN_BASES), default=[TINY, SMALL])
    parser.add_argument("--repetitions", type=int, help="timed turns of each side, instead of the bench's own choice")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of one operation")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", help="of the bases; bfloat16 on CUDA")
    parser.add_argument("--cuda-graphs", type=int, default=64, help="forwards kept recorded on CUDA, on both sides")
    return parser.parse_args(arguments)


def measure(names: Iterable[str], bases: Bases) -> list[Figure]:
    """Every figure of the levers named, told as it comes."""
    figures = []
    for name in names:
        for figure in LEVERS[name](bases):
            print(progress(figure), flush=True)
            figures.append(figure)
    return figures


def machine(device: str) -> dict[str, object]:
    """What the times depend on."""
    return {
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "accelerator": torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else None,
        "load_average_1min": os.getloadavg()[0],
    }


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    setting = Setting(
        device=options.device,
        dtype=options.dtype,
        quick=options.quick,
        repetitions=options.repetitions,
        cuda_graphs=options.cuda_graphs,
    )
    before = machine(options.device)
    print(f"Random weights. {before | {'device': options.device, 'dtype': options.dtype}}")
    figures = measure(options.only or LEVERS, Bases(setting, options.bases))
    print(f"\n{table(figures)}")
    if options.json:
        settings = {
            name: getattr(options, name) for name in ("quick", "bases", "threads", "device", "dtype", "cuda_graphs")
        }
        found = as_json(figures, machine=before | {"load_average_after": os.getloadavg()[0]}, settings=settings)
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
