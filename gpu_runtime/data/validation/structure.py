"""Do the metadata add up: totals, episode numbering, lengths, files that exist and files nobody refers to."""

from gpu_runtime.data import episodes_v21, episodes_v30
from gpu_runtime.data.features import dimension_names, flat_names
from gpu_runtime.data.info import INFO_FILE
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.validation.findings import Findings, Place
from gpu_runtime.data.validation.tree import Tree


def check_structure(dataset: LeRobotDataset, tree: Tree, findings: Findings) -> None:
    """Compare info.json with the episode tables and the files."""
    _check_totals(dataset, findings)
    _check_episodes(dataset, findings)
    _check_names(dataset, findings)
    _check_files(dataset, tree, findings)


def _check_totals(dataset: LeRobotDataset, findings: Findings) -> None:
    info = dataset.info
    counted = {
        "total_episodes": (info.total_episodes, len(dataset.episodes)),
        "total_frames": (info.total_frames, dataset.frame_count),
        "total_tasks": (info.total_tasks, len(dataset.tasks)),
    }
    for name, (claimed, found) in counted.items():
        if claimed is not None and claimed != found:
            findings.error(name, f"{name} is {claimed}; the episode tables hold {found}", file=INFO_FILE)


def _check_episodes(dataset: LeRobotDataset, findings: Findings) -> None:
    file = (episodes_v21 if dataset.info.major == 2 else episodes_v30).EPISODES_FILE
    first = 0
    for position, episode in enumerate(dataset.episodes):
        place: Place = {"file": file, "episode": episode.index}
        if episode.index != position:
            findings.error("episode_index", f"episode {position} is missing: indices must be 0, 1, 2 …", **place)
            break
        if episode.length == 0:
            findings.error("episode_empty", "the episode has no frames", **place)
        if episode.from_index != first:
            findings.error(
                "episode_range", f"starts at frame {episode.from_index}; the episodes before it have {first}", **place
            )
        if not any(task.strip() for task in episode.tasks):
            findings.warning("task_empty", "the episode has no instruction", **place)
        unknown = set(episode.tasks) - set(dataset.tasks.values())
        if unknown:
            findings.error("task_unknown", f"task {unknown.pop()!r:.80} is not in the task table", **place)
        first = episode.from_index + episode.length


def _check_names(dataset: LeRobotDataset, findings: Findings) -> None:
    """Names that do not count as many as the dimensions are replaced by numbers; say so."""
    for vector in (dataset.schema.state, dataset.schema.action):
        if vector is None:
            continue
        feature = dataset.info.features[vector.key]
        names = list(flat_names(feature.names))
        if len(names) != vector.dim and vector.names == dimension_names(feature):
            findings.warning(
                "dimension_names",
                f"{vector.key} has {len(names)} names for {vector.dim} dimensions; they are numbered instead",
                file=INFO_FILE,
                feature=vector.key,
            )


def _check_files(dataset: LeRobotDataset, tree: Tree, findings: Findings) -> None:
    referred: dict[str, tuple[int, str | None]] = {
        episode.data_file: (episode.index, None) for episode in reversed(dataset.episodes)
    }
    for episode in reversed(dataset.episodes):
        referred |= {segment.file: (episode.index, key) for key, segment in episode.videos.items()}
    present = set(tree.files)
    for file, (index, camera) in sorted(referred.items()):
        if file not in present:
            code = "file_missing" if camera is None else "camera_missing"
            findings.error(code, f"{file} is missing", file=file, episode=index, feature=camera)
    for file in tree.files:
        if file.startswith(("data/", "videos/")) and file.endswith((".parquet", ".mp4")) and file not in referred:
            findings.warning("file_unused", f"no episode refers to {file}", file=file)
