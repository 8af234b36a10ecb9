"""Wakes for live pages: "this job has rows up to seq". The rows are the truth; a lost wake costs one poll."""

import asyncio
import logging
from collections.abc import Mapping
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

logger = logging.getLogger(__name__)

WAKE_TYPE = "job.wake"
_TIMEOUT_S = 1.0


def job_group(tenant_id: UUID, job_id: UUID) -> str:
    """The channel layer's group of one job. The tenant's id comes first: groups of two tenants never meet."""
    return f"job.{tenant_id}.{job_id}"


def tenant_group(tenant_id: UUID) -> str:
    """The group of a tenant's pages: something of one of its jobs is new."""
    return f"tenant.{tenant_id}"


def wake(newest: Mapping[tuple[UUID, UUID], int]) -> bool:
    """Tell listeners of ``(tenant id, job id) -> newest seq``, and those of the tenants. False if the layer failed.

    Call after the commit. Nothing depends on delivery: consumers also poll.
    """
    if not newest:
        return True
    try:
        async_to_sync(_send)(newest)
    except Exception as error:  # a broken channel layer must never hurt the caller
        logger.info("wake of %d jobs not sent: %s", len(newest), error)
        return False
    return True


async def _send(newest: Mapping[tuple[UUID, UUID], int]) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    async with asyncio.timeout(_TIMEOUT_S):
        for (tenant_id, job_id), seq in newest.items():
            await layer.group_send(job_group(tenant_id, job_id), {"type": WAKE_TYPE, "seq": seq})
        for tenant_id in {tenant_id for tenant_id, _ in newest}:
            await layer.group_send(tenant_group(tenant_id), {"type": WAKE_TYPE})
