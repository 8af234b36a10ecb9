"""The policies that jobs start from: adapters among this runtime's own artifacts, and whether they are still what
the control plane bound."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gpu_runtime.models.adapters import Adapter, load_adapter
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.folders import sha256
from gpu_runtime.models.manifest import NAME as MANIFEST
from gpu_runtime.protocol.messages import PolicyBinding
from gpu_runtime.services.artifacts import Artifacts


class PolicyUnusable(ValueError):
    """Base of the refusals below; ``code`` is the job's reason."""

    code: ClassVar[str] = "policy_unusable"


class PolicyMissing(PolicyUnusable):
    """There is no such adapter here."""

    code = "policy_missing"


class PolicyAltered(PolicyUnusable):
    """The adapter's files are not those that were published."""

    code = "policy_altered"


class PolicyBaseMissing(PolicyUnusable):
    """The base model that the adapter was trained on is not resident."""

    code = "policy_base_missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPolicy:
    """An adapter on its resident base."""

    adapter: Adapter
    backbone: Backbone

    @property
    def version(self) -> int:
        return self.adapter.manifest.training.policy_version


def find_policy(binding: PolicyBinding, artifacts: Artifacts, bases: Mapping[str, Backbone]) -> tuple[Path, Backbone]:
    """Its archive and its base. Raises PolicyMissing, PolicyBaseMissing."""
    if binding.base_model not in bases:
        raise PolicyBaseMissing(
            f"base model {binding.base_model!r} of policy {binding.artifact_id!r} is not resident; "
            f"allowed: {', '.join(sorted(bases))}"
        )
    archive = artifacts.archive(binding.artifact_id)
    if archive is None:
        raise PolicyMissing(f"no policy {binding.artifact_id!r} among the artifacts of this runtime")
    return archive, bases[binding.base_model]


def load_policy(binding: PolicyBinding, artifacts: Artifacts, bases: Mapping[str, Backbone]) -> BoundPolicy:
    """Check and load; blocks on files.

    Raises PolicyMissing, PolicyAltered, PolicyBaseMissing, or a subclass of AdapterError: nothing of a doubtful policy
    is used.
    """
    archive, backbone = find_policy(binding, artifacts, bases)
    found = sha256(archive)
    if found != binding.sha256:
        raise PolicyAltered(f"policy {binding.artifact_id!r} hashes to {found}, but {binding.sha256} was published")
    folder = artifacts.folder(binding.artifact_id)
    if not folder.is_dir():
        raise PolicyMissing(f"policy {binding.artifact_id!r} has an archive and no folder")
    _check_manifest(archive, folder)
    adapter = load_adapter(folder, backbone, device=backbone.info.device)
    return BoundPolicy(adapter=adapter, backbone=backbone)


def _check_manifest(archive: Path, folder: Path) -> None:
    """The manifest lists the hashes of all other files: when it is that of the archive, so is everything."""
    try:
        with zipfile.ZipFile(archive) as published:
            wanted = published.read(MANIFEST)
    except (KeyError, zipfile.BadZipFile) as error:
        raise PolicyMissing(f"artifact {folder.name!r} is no adapter: {error}") from error
    path = folder / MANIFEST
    if not path.is_file() or path.read_bytes() != wanted:
        raise PolicyAltered(f"{MANIFEST} of policy {folder.name!r} is not the one that was published")
