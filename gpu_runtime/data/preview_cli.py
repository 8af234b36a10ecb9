"""``python -m gpu_runtime preview PATH WHAT``: episodes, curves, distributions (JSON) or a frame (JPEG) on stdout.

The video of an episode goes into a file instead.

It reads foreign bytes within limits of memory and CPU time. Exit status 3: what was asked for is not there or cannot
be read, and stdout is a Defect as JSON; 4: more memory is needed than allowed.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_runtime.data.cli import Limits, apply_limits, positive
from gpu_runtime.protocol.schema import Declared

NOT_THERE, OUT_OF_MEMORY = 3, 4
_LIMITS = Limits(memory_mib=3072, cpu_s=30)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 with the answer; 2 for wrong usage."""
    options = _parser().parse_args(argv)
    apply_limits(Limits(memory_mib=options.memory_mib, cpu_s=options.cpu_s))
    from gpu_runtime.data.errors import DatasetError  # the readers are loaded within the limits

    try:
        answer = _answer(options)
    except DatasetError as error:
        sys.stdout.write(error.to_defect().model_dump_json() + "\n")
        return NOT_THERE
    except MemoryError:
        return OUT_OF_MEMORY
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    return 0


def _answer(options: argparse.Namespace) -> bytes:
    from gpu_runtime.data.distribution import distribution
    from gpu_runtime.data.episode_video import write_episode_video
    from gpu_runtime.data.lerobot import LeRobotDataset
    from gpu_runtime.data.preview import episode_series, episodes_page, frame_jpeg

    declared = Declared.model_validate_json(options.declared).model_dump(mode="json", exclude_unset=True)
    dataset = LeRobotDataset.open(options.path, declared)
    match options.what:
        case "episodes":
            page = episodes_page(dataset, first=options.first, count=options.count, task=options.task)
            return json.dumps(page, allow_nan=False).encode()
        case "episode":
            series = episode_series(dataset, options.episode, points_max=options.points)
            return json.dumps(series, allow_nan=False).encode()
        case "distribution":
            return json.dumps(distribution(dataset), allow_nan=False).encode()
        case "video":
            index, camera, to = options.episode, options.camera, options.to
            write_episode_video(dataset, index, camera=camera, to=to, max_bytes=options.max_bytes)
            return b""
        case _:
            return frame_jpeg(dataset, options.episode, camera=options.camera, frame=options.frame)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_runtime preview", description=__doc__.splitlines()[0])
    parser.add_argument("path", metavar="PATH", type=Path, help="a LeRobot v2.1 or v3.x directory")
    parser.add_argument("--declared", metavar="JSON", default="{}", help="what info.json cannot say")
    parser.add_argument("--memory-mib", type=positive, default=_LIMITS.memory_mib, help="address space")
    parser.add_argument("--cpu-s", type=positive, default=_LIMITS.cpu_s, help="CPU seconds")
    kinds = parser.add_subparsers(dest="what", required=True)
    episodes = kinds.add_parser("episodes", help="index, length and instruction")
    episodes.add_argument("--first", type=int, default=0, help="position of the first one shown")
    episodes.add_argument("--count", type=positive, default=100)
    episodes.add_argument("--task", help="only those of this instruction")
    kinds.add_parser("distribution", help="histograms of state, action and episode length")
    episode = kinds.add_parser("episode", help="curves of state and action")
    episode.add_argument("episode", type=int)
    episode.add_argument("--points", type=positive, default=500, help="buckets of a curve at most")
    frame = kinds.add_parser("frame", help="one frame, turned upright")
    frame.add_argument("episode", type=int)
    frame.add_argument("camera")
    frame.add_argument("frame", type=int)
    video = kinds.add_parser("video", help="an episode of one camera, as browsers play it")
    video.add_argument("--to", type=Path, required=True, help="the MP4 to write")
    video.add_argument("--max-bytes", type=positive, default=2**26)
    video.add_argument("episode", type=int)
    video.add_argument("camera")
    return parser
