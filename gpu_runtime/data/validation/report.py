"""One ValidationReport of one dataset directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_runtime.data.fingerprint import dataset_fingerprint
from gpu_runtime.data.info import INFO_FILE
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.normalize import NormalizationMode, Normalizer
from gpu_runtime.data.presets import PRESETS
from gpu_runtime.data.statistics import dataset_statistics
from gpu_runtime.data.validation.channel_order import check_channel_order
from gpu_runtime.data.validation.findings import Findings
from gpu_runtime.data.validation.rows import check_rows
from gpu_runtime.data.validation.stored_statistics import check_stored_statistics
from gpu_runtime.data.validation.structure import check_structure
from gpu_runtime.data.validation.tree import Tree, check_tree
from gpu_runtime.data.validation.views import check_views
from gpu_runtime.protocol.schema import DatasetStatistics, DatasetSummary, ValidationReport

_ROUNDING = 1e-4


def validate_dataset(root: Path, declared: Mapping[str, Any] | None = None) -> ValidationReport:
    """Check everything about the dataset at ``root``; whatever goes wrong becomes a defect of the report."""
    findings = Findings()
    summary = None
    with findings.guard("."):
        tree = check_tree(root, findings)
        dataset = _open(root, declared, findings)
        if dataset is not None:
            statistics = _check(dataset, tree, findings)
            if statistics is not None:
                summary = _summary(dataset, statistics, tree)
    return ValidationReport(defects=findings.defects(), summary=summary)


def _open(root: Path, declared: Mapping[str, Any] | None, findings: Findings) -> LeRobotDataset | None:
    with findings.guard(INFO_FILE):
        return LeRobotDataset.open(root, declared)
    return None


def _check(dataset: LeRobotDataset, tree: Tree, findings: Findings) -> DatasetStatistics | None:
    """Every check in turn; the statistics where the data could be read and are finite."""
    check_structure(dataset, tree, findings)
    check_rows(dataset, findings)
    loads = _loads(dataset, findings)
    means = check_views(dataset, findings, decode=loads)
    if not loads or findings.has("not_finite"):
        return None
    with findings.guard(dataset.episodes[0].data_file):
        statistics = dataset_statistics(dataset)
        _check_constants(dataset, statistics, findings)
        _check_preset(dataset, statistics, findings)
        images = check_stored_statistics(dataset, findings)
        check_channel_order(dataset, images, means, findings)
        return statistics
    return None


def _loads(dataset: LeRobotDataset, findings: Findings) -> bool:
    """Whether all vectors can be read at once; why not has usually been reported, file by file."""
    try:
        dataset.actions_NA()
    except Exception as error:
        with findings.guard(dataset.episodes[0].data_file):
            if not findings.has_errors:
                raise error
        return False
    return True


def _check_constants(dataset: LeRobotDataset, statistics: DatasetStatistics, findings: Findings) -> None:
    """Warn of dimensions that hardly move: they are normalised to 0."""
    for vector, values in ((dataset.schema.state, statistics.state), (dataset.schema.action, statistics.action)):
        if vector is None or values is None:
            continue
        normalizer = Normalizer.from_statistics(values, NormalizationMode.QUANTILE, vector.names)
        for dimension in normalizer.degenerate_D.nonzero()[0].tolist():
            findings.warning(
                "dimension_constant",
                f"{vector.key} dimension {dimension} ({vector.names[dimension]}) stays at {values.q01[dimension]:.6g}",
                file=dataset.episodes[0].data_file,
                feature=vector.key,
            )


def _check_preset(dataset: LeRobotDataset, statistics: DatasetStatistics, findings: Findings) -> None:
    """Refuse actions beyond the preset's range: they are of another kind, for example absolute poses."""
    if dataset.preset is None:
        return
    limit, action = PRESETS[dataset.preset].action_limit, statistics.action
    for dimension, name in enumerate(dataset.schema.action.names):
        low, high = action.min[dimension], action.max[dimension]
        if low < -limit - _ROUNDING or high > limit + _ROUNDING:
            findings.error(
                "action_range",
                f"{dataset.schema.action.key} dimension {dimension} ({name}) goes from {low:.6g} to {high:.6g}; "
                f"{dataset.preset.value}'s relative actions stay within -{limit:g} to {limit:g}",
                file=dataset.episodes[0].data_file,
                feature=dataset.schema.action.key,
            )
            return


def _summary(dataset: LeRobotDataset, statistics: DatasetStatistics, tree: Tree) -> DatasetSummary:
    return DatasetSummary(
        codebase_version=dataset.info.codebase_version,
        schema=dataset.schema,
        statistics=statistics,
        fingerprint=dataset_fingerprint(dataset.root, list(tree.files)),
        episodes=len(dataset.episodes),
        frames=dataset.frame_count,
        episode_length_min=min(dataset.lengths),
        episode_length_max=max(dataset.lengths),
        tasks=tuple(task for _, task in sorted(dataset.tasks.items())),
        size_bytes=tree.size_bytes,
    )
