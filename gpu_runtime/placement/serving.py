"""The two services that act: inference, with the policies it serves, and environments with their seats."""

from collections.abc import Mapping

import torch

from gpu_runtime.environments.pool import EnvironmentPool, PoolLimits
from gpu_runtime.environments.seat_desk import SeatDesk
from gpu_runtime.environments.seats import SeatTable
from gpu_runtime.environments.session import Deadlines
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.policy_store import PolicyStore
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.inference.settings import InferenceSettings
from gpu_runtime.inference.step import PredictStep
from gpu_runtime.inference.usage import PredictRecord
from gpu_runtime.scheduler.inference_queue import InferenceLimits
from gpu_runtime.services.config import ConfigurationError, RuntimeConfig
from gpu_runtime.services.inference_status import InferenceWatch
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.records import Write
from gpu_runtime.training.clock import DeviceClock, unix_us


def build_inference(
    config: RuntimeConfig, *, device: str, handles: FeatureHandles, durability: Durability, watch: InferenceWatch
) -> InferenceService:
    """A compute thread of its own over the resident bases; its usage goes to the journal."""

    async def write(record: PredictRecord) -> None:
        await durability.write(Write(entries=record.entries(unix_us())))

    policies: PolicyStore[ServedPolicy] = PolicyStore(keep=config.policy_versions_kept, on_gone=handles.release)
    return InferenceService(
        policies=policies,
        step=PredictStep(DeviceClock(device), handles),
        write=write,
        settings=_inference_settings(config),
        watch=watch,
        threads=config.threads,
    )


def _inference_settings(config: RuntimeConfig) -> InferenceSettings:
    limits = InferenceLimits(per_tenant=config.predict_waiting_per_tenant, total=config.predict_waiting_total)
    return InferenceSettings(
        wait_us=config.predict_wait_ms * 1000, batch_tokens=config.predict_batch_tokens or None, limits=limits
    )


def build_pool(config: RuntimeConfig, families: Mapping[str, str]) -> EnvironmentPool:
    """Environment processes; ``families`` is the registry of simulators. Raises ConfigurationError."""
    if config.env_device == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("JOYNEXUS_RUNTIME_ENV_DEVICE is 'cuda', but there is no CUDA device; allowed: cpu")
    deadlines = Deadlines(open_s=config.env_open_s, reset_s=config.env_reset_s, step_s=config.env_step_s)
    limits = PoolLimits(
        seats_total=config.env_seats_total,
        seats_per_tenant=config.env_seats_per_tenant,
        seats_per_process=config.env_seats_per_process,
        processes_warm=config.env_processes_warm,
        resident_bytes_max=config.env_resident_mib * 2**20,
        deadlines=deadlines,
    )
    return EnvironmentPool(limits, families=families, device=config.env_device)


def build_rollout_desk(config: RuntimeConfig) -> SeatDesk:
    """One seat is one rollout in production: bounded in all and for each tenant, waited for in turn."""
    return SeatDesk(SeatTable(total=config.rollouts_total, per_tenant=config.rollouts_per_tenant))
