"""Everything an operator can set, checked before anything starts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gpu_runtime.protocol.catalog import DEFAULT_BASE_MODELS, BaseModelEntry, parse_base_models

_PREFIX = "JOYNEXUS_RUNTIME_"
_OF_THE_CONTROL_PLANE = {f"{_PREFIX}URL"}  # where it finds this runtime; both may share an environment
_GIB = 2**30
_SWITCHES = ("verify_datasets", "head_pool", "group_lora", "dedup_frames", "truncate_depth")
FEATURE_DTYPES = ("float16", "float32")
_PORT_MAX = 65535


class ConfigurationError(ValueError):
    """A setting is missing or has a value that is not allowed; the message names it and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """One runtime process. Numbers may be set by environment: ``JOYNEXUS_RUNTIME_<NAME IN CAPITALS>``."""

    state: Path  # journal, partitions, checkpoints, artifacts
    listen: str  # "unix:PATH" or "HOST:PORT"
    datasets: Path  # every dataset lies under this folder
    token: str  # bearer token of the gateway
    bases: Mapping[str, BaseModelEntry]
    device: str = "auto"  # auto: the first CUDA device, else the CPU
    dtype: str = "float32"
    threads: int = 1  # torch intra-op threads; more spin against neighbours on a shared machine
    group_tokens: int = 8192  # prompt tokens of one group
    max_tokens_per_forward: int = 0  # a group runs in chunks of this size; 0: the best of a few, measured at start
    cuda_graphs: int = (
        0  # forwards of shapes that repeat, recorded per base on CUDA; each holds device memory; 0: none
    )
    vision_cache_bytes: int = 64 * 2**20  # vision outputs kept per base for unchanged pictures of a tenant; 0: none
    in_flight_per_job: int = 4  # partitions a job may be ahead
    max_jobs: int = 64  # mounted at once; further ones wait
    lease_ttl_ms: int = 60_000
    window_ms: int = 500  # D: how far ahead of the least served tenant a rider may be
    wait_ms: int = 5  # T: how long an idle device waits for company
    partition_bytes: int = 4 * _GIB  # all tenants together
    partition_bytes_per_tenant: int = _GIB
    read_ahead_bytes: int = 64 * 2**20  # batches opened before their turn, all jobs together; 0: none
    cache_bytes: int = _GIB // 2  # decoded frames, per job
    journal_max_bytes: int = 0  # 0: no limit but the disk
    journal_days: int = 30  # events older than this are forgotten once the control plane has them; 0: never
    min_free_bytes: int = _GIB // 4
    keep_checkpoints: int = 2
    status_window_s: int = 60
    head_pool: int = 1  # 1: heads of one architecture train in one call where that was measured faster; 0: one by one
    group_lora: int = 1  # 1: tenants with an adapter of the base share forward and backward; 0: each has its own
    dedup_frames: int = 1  # 1: of a group's samples known to be equal one runs; 0: each
    truncate_depth: int = 1  # 1: a sample leaves the text stack after its deepest tap; 0: none does
    verify_datasets: int = 1  # 1: hash a dataset's files before its first use
    predict_wait_ms: int = 0  # how long an idle device waits for further predict requests; 0: continuous batching
    predict_batch_tokens: int = 0  # prompt tokens of one batch of predictions; 0: the knee, as measured
    predict_waiting_per_tenant: int = 1024  # predict requests that may wait or run
    predict_waiting_total: int = 8192
    policy_versions_kept: int = 2  # of each policy slot; older ones stay while they are in use
    handle_bytes: int = _GIB // 4  # prefix features kept for trainers
    feature_store_ram_bytes: int = _GIB // 4  # features of demonstrations in memory, half of it staged for next steps
    feature_store_file_bytes: int = 4 * _GIB  # the same in files; both 0: every step computes its features
    feature_store_dtype: str = "float16"  # float32: exact, twice as large
    env_seats_total: int = 32  # environments in use at once
    env_seats_per_tenant: int = 16
    env_seats_per_process: int = 4  # unless a session says how many processes it wants
    env_processes_warm: int = 4  # kept unused for the next session
    env_resident_mib: int = 6144  # an environment process that grows beyond it is given up
    env_open_s: int = 180  # deadlines of calls; the first picture compiles shaders for up to 20 s
    env_reset_s: int = 60
    env_step_s: int = 60
    env_device: str = "cpu"  # cuda: simulators that can run all seats of a session on the GPU in one process do
    rollouts_total: int = 64  # batches of episodes in production at once
    rollouts_per_tenant: int = 16

    def __post_init__(self) -> None:
        if len(self.token) < 16:
            raise ConfigurationError(f"JOYNEXUS_RUNTIME_TOKEN: {len(self.token)} characters; at least 16 are needed")
        if not self.datasets.is_dir():
            raise ConfigurationError(f"--datasets {self.datasets}: not a folder")
        if self.dtype not in ("float32", "bfloat16", "float16"):
            raise ConfigurationError(f"dtype {self.dtype!r}: allowed are float32, bfloat16 and float16")
        if self.feature_store_dtype not in FEATURE_DTYPES:
            raise ConfigurationError(
                f"{_PREFIX}FEATURE_STORE_DTYPE is {self.feature_store_dtype!r}; allowed: {', '.join(FEATURE_DTYPES)}"
            )
        if self.env_device not in ("cpu", "cuda"):
            raise ConfigurationError(f"{_PREFIX}ENV_DEVICE is {self.env_device!r}; allowed: cpu and cuda")
        for name in _SWITCHES:
            if getattr(self, name) not in (0, 1):
                raise ConfigurationError(f"{_PREFIX}{name.upper()} is {getattr(self, name)}; allowed: 0 and 1")
        if not self.bases:
            raise ConfigurationError("JOYNEXUS_BASE_MODELS names no base model")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigurationError(
                    f"{_PREFIX}{name.upper()} is {getattr(self, name)}; allowed: at least {least}"
                )
        _check_listen(self.listen)

    @property
    def batch_bytes_max(self) -> int:
        """What a single batch may hold: for more there would never be room."""
        return min(self.partition_bytes, self.partition_bytes_per_tenant)

    @classmethod
    def read(
        cls, *, state: str, listen: str, datasets: str, environment: Mapping[str, str] | None = None
    ) -> "RuntimeConfig":
        """Command line plus environment. Raises ConfigurationError."""
        environment = os.environ if environment is None else environment
        try:
            bases = parse_base_models(environment.get("JOYNEXUS_BASE_MODELS", DEFAULT_BASE_MODELS))
        except ValueError as error:
            raise ConfigurationError(f"JOYNEXUS_BASE_MODELS: {error}") from error
        return cls(
            state=Path(state).resolve(),
            listen=listen,
            datasets=Path(datasets).resolve(),
            token=environment.get(f"{_PREFIX}TOKEN", ""),
            bases=bases,
            **_settings(environment),
        )


_LEAST = {
    "threads": 1,
    "group_tokens": 1,
    "max_tokens_per_forward": 0,
    "cuda_graphs": 0,
    "vision_cache_bytes": 0,
    "in_flight_per_job": 1,
    "max_jobs": 1,
    "lease_ttl_ms": 1000,
    "window_ms": 0,
    "wait_ms": 0,
    "partition_bytes": 1,
    "partition_bytes_per_tenant": 1,
    "read_ahead_bytes": 0,
    "cache_bytes": 0,
    "journal_max_bytes": 0,
    "journal_days": 0,
    "min_free_bytes": 0,
    "keep_checkpoints": 1,
    "status_window_s": 1,
    "predict_wait_ms": 0,
    "predict_batch_tokens": 0,
    "predict_waiting_per_tenant": 1,
    "predict_waiting_total": 1,
    "policy_versions_kept": 1,
    "handle_bytes": 0,
    "feature_store_ram_bytes": 0,
    "feature_store_file_bytes": 0,
    "env_seats_total": 1,
    "env_seats_per_tenant": 1,
    "env_seats_per_process": 1,
    "env_processes_warm": 0,
    "env_resident_mib": 64,
    "env_open_s": 1,
    "env_reset_s": 1,
    "env_step_s": 1,
    "rollouts_total": 1,
    "rollouts_per_tenant": 1,
}


def _settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Optional settings of ``environment``; integers are read as such. A name that is no setting is refused."""
    settable = [field for field in fields(RuntimeConfig) if field.type in (int, str) and field.name != "listen"]
    known = {f"{_PREFIX}{field.name.upper()}": field for field in settable}
    unknown = {name for name in environment if name.startswith(_PREFIX)} - set(known) - _OF_THE_CONTROL_PLANE
    if unknown:
        raise ConfigurationError(f"{', '.join(sorted(unknown))}: no such setting; allowed: {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for variable, field in known.items():
        if field.name == "token" or variable not in environment:
            continue
        text = environment[variable]
        try:
            values[field.name] = int(text) if field.type is int else text
        except ValueError as error:
            raise ConfigurationError(f"{variable} is {text!r}; a whole number is needed") from error
    return values


def _check_listen(listen: str) -> None:
    """``unix:PATH`` within the 107 bytes a socket address has, or HOST:PORT."""
    kind, _, rest = listen.partition(":")
    if kind == "unix":
        if not rest or len(rest.encode()) > 107:
            raise ConfigurationError(f"--listen {listen}: a socket path has 1 to 107 bytes")
        return
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        allowed = f"unix:PATH or HOST:PORT, a port is 0 to {_PORT_MAX}, and 0.0.0.0 must be said where it is meant"
        raise ConfigurationError(f"--listen {listen!r}: expected {allowed}")
