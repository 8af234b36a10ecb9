"""Every role in this process: the default placement. The device has a thread of its own, files have others."""

import asyncio
import functools
import logging
import os
import signal
import socket

import torch

from gpu_runtime.models.backbones.base import Backbone, Savings
from gpu_runtime.models.registry import DEFAULT_TOKENS_PER_FORWARD, load_backbone
from gpu_runtime.models.token_budget import settle_token_budget
from gpu_runtime.placement.http_server import build_server, open_socket
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.placement.state_folder import StateFolderUnusable, exclusive
from gpu_runtime.services.config import ConfigurationError, RuntimeConfig
from gpu_runtime.store.errors import StoreError

_log = logging.getLogger(__name__)
_STOP_WITHIN_S = 4.5


def load_bases(config: RuntimeConfig) -> dict[str, Backbone]:
    """Load every configured base; they stay resident. Raises ConfigurationError naming the one that cannot be."""
    torch.set_num_threads(config.threads)
    load = functools.partial(
        load_backbone,
        device=_device(config.device),
        dtype=config.dtype,
        max_tokens_per_forward=config.max_tokens_per_forward or DEFAULT_TOKENS_PER_FORWARD,
        vision_cache_bytes=config.vision_cache_bytes,
        cuda_graphs=config.cuda_graphs,
        savings=Savings(
            dedup_frames=bool(config.dedup_frames),
            truncate_depth=bool(config.truncate_depth),
            group_lora=bool(config.group_lora),
        ),
    )
    bases: dict[str, Backbone] = {}
    for name, entry in config.bases.items():
        try:
            base = load(entry)
            if not config.max_tokens_per_forward:
                settle_token_budget(base, config.state)
            bases[name] = base
        except (ValueError, OSError) as error:
            raise ConfigurationError(f"base model {name}={entry.source}: {error}") from error
    return bases


def _device(wanted: str) -> str:
    """``auto`` resolved; any other is tried out, because torch has many words for one that is not there."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted).item()
    except Exception as error:
        raise ConfigurationError(f"device {wanted!r}: {str(error).splitlines()[0]}") from error
    return wanted


def serve(config: RuntimeConfig) -> None:
    """Run until SIGTERM or SIGINT; the process ends within five seconds of it.

    Raises StateFolderInUse, StateFolderUnusable, ConfigurationError.
    """
    with exclusive(config.state):
        asyncio.run(_serve(config))


async def _serve(config: RuntimeConfig) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait(), name="signal")
    listening = _open_socket(config)
    runtime = _build(config, await _bases_unless(stopped, config))
    server = build_server(runtime.gateway().app())
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="gateway")
    work = asyncio.create_task(runtime.work(), name="services")
    _log.info("serving on %s, bases: %s", config.listen, ", ".join(config.bases))
    await asyncio.wait({serving, work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if work.done():
        # It ends by itself only when it fails. What is not durable is redone, so this is as safe as a kill.
        _log.critical("a service failed", exc_info=work.exception())
        logging.shutdown()
        os._exit(1)
    try:
        async with asyncio.timeout(_STOP_WITHIN_S):
            server.should_exit = True
            await asyncio.gather(serving, runtime.stop(work))
            await asyncio.to_thread(runtime.drain)
    except TimeoutError:
        # Threads cannot be interrupted. Whatever is not durable now is redone from the last checkpoint.
        _log.warning("work in progress does not end; leaving it to the next start")
    else:
        runtime.close()
        work.result()
        _log.info("stopped in good order")
    logging.shutdown()
    os._exit(0)  # Python would wait for threads that nobody waits for, and take torch apart, for seconds


def _build(config: RuntimeConfig, bases: dict[str, Backbone]) -> LocalRuntime:
    try:
        return LocalRuntime(config, bases)
    except (StoreError, OSError) as error:
        raise StateFolderUnusable(f"--state {config.state}: {error}") from error


async def _bases_unless(stopped: "asyncio.Task[bool]", config: RuntimeConfig) -> dict[str, Backbone]:
    """Load the bases; a signal meanwhile ends the process at once, as nothing has begun."""
    loading = asyncio.create_task(asyncio.to_thread(load_bases, config))
    await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        logging.shutdown()
        os._exit(0)
    return loading.result()


def _open_socket(config: RuntimeConfig) -> socket.socket:
    try:
        return open_socket(config.listen)
    except OSError as error:
        raise ConfigurationError(f"--listen {config.listen}: {error}") from error
