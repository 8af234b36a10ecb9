"""Why a ManiSkill task cannot start on this machine, in words that name what is missing."""

from collections.abc import Iterator

from mani_skill.agents.registration import REGISTERED_AGENTS
from mani_skill.utils import assets
from mani_skill.utils.registration import REGISTERED_ENVS

from gpu_runtime.environments.errors import SimulatorMissing


def missing(env_id: str, error: BaseException) -> SimulatorMissing:
    """What to tell of an ``error`` that ManiSkill raised while it started ``env_id``."""
    if isinstance(error, ImportError):
        return SimulatorMissing(f"env: {env_id} needs a Python package that is not installed ({error})")
    packs = sorted(set(_packs(env_id)))
    if packs:
        how = f"python -m mani_skill.utils.download_asset {' '.join(packs)}"
        return SimulatorMissing(f"env: {env_id} needs assets that are not installed: {', '.join(packs)} ({how})")
    if isinstance(error, EOFError | FileNotFoundError) or "download" in str(error).lower():
        return SimulatorMissing(f"env: {env_id} needs assets that are not installed ({error})")
    return SimulatorMissing(
        f"env: ManiSkill cannot start {env_id} ({error}). It needs a Vulkan device: deploy/system-packages.sh"
    )


def _packs(env_id: str) -> Iterator[str]:
    """Asset packs that the task or its usual robot asks for, and that are not there."""
    entry = REGISTERED_ENVS[env_id]
    wanted = list(entry.asset_download_ids or [])
    usual = (getattr(entry.cls, "SUPPORTED_ROBOTS", None) or [None])[0]
    if isinstance(usual, str) and usual in REGISTERED_AGENTS:
        wanted += REGISTERED_AGENTS[usual].asset_download_ids
    for pack in wanted:
        sources = (
            assets.expand_data_group_into_individual_data_source_ids(pack) if pack in assets.DATA_GROUPS else [pack]
        )
        if not all(assets.is_data_source_downloaded(source) for source in sources):
            yield pack
