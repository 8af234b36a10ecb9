"""``python -m gpu_runtime``: serve, and the tools that share its code."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

_TOOLS = {
    "act": ("gpu_runtime.models.act", "run an exported adapter on a dataset's episode and print its actions"),
    "evaluate": ("gpu_runtime.workflows.evaluate_cli", "play an exported adapter in its environment, count successes"),
    "preview": ("gpu_runtime.data.preview_cli", "print a dataset's episodes, an episode's curves or a frame"),
    "record": ("gpu_runtime.environments.record", "record demonstrations in an environment as a LeRobot dataset"),
    "validate": ("gpu_runtime.data.cli", "check a LeRobot dataset and print the report"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; only its own code is imported."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments and arguments[0] in _TOOLS:
        tool: Callable[[list[str]], int | None] = import_module(_TOOLS[arguments[0]][0]).main
        return tool(list(arguments[1:])) or 0
    parser = argparse.ArgumentParser(prog="python -m gpu_runtime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run the GPU runtime with its HTTP gateway")
    serve.add_argument("--state", required=True, help="folder of journal, partitions, checkpoints and artifacts")
    serve.add_argument("--listen", required=True, help="unix:PATH or HOST:PORT")
    serve.add_argument("--datasets", required=True, help="folder under which every dataset lies")
    for name, (_, text) in _TOOLS.items():
        commands.add_parser(name, help=text, add_help=False)
    options = parser.parse_args(arguments)
    return _serve(options.state, options.listen, options.datasets)


def _serve(state: str, listen: str, datasets: str) -> int:
    """Exit status 2 for a setting that is not allowed, 3 for a state folder in use, 4 for one that is unusable."""
    from gpu_runtime.services.config import ConfigurationError, RuntimeConfig

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = RuntimeConfig.read(state=state, listen=listen, datasets=datasets)
        # Only now, because it loads torch: a wrong setting is told at once.
        from gpu_runtime.placement.local import serve
        from gpu_runtime.placement.state_folder import StateFolderInUse, StateFolderUnusable
    except ConfigurationError as error:
        return _refuse(error, 2)
    try:
        serve(config)
    except ConfigurationError as error:
        return _refuse(error, 2)
    except StateFolderInUse as error:
        return _refuse(error, 3)
    except StateFolderUnusable as error:
        return _refuse(error, 4)
    return 0


def _refuse(error: Exception, status: int) -> int:
    print(f"gpu_runtime serve: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
