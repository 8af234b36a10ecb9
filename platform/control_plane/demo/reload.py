"""A policy as its owner gets it: downloaded, loaded in a clean process, compared with what it did on the platform."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from control_plane.conf import environment as env
from joynexus_client import Artifact, Client


def download(client: Client, adapter: Artifact, folder: Path) -> Path:
    """The unpacked adapter, in a folder of its own."""
    target = folder / adapter["id"]
    target.mkdir(parents=True, exist_ok=True)
    archive = client.artifacts.download(adapter["id"], to=target / "adapter.zip")
    with zipfile.ZipFile(archive) as content:
        content.extractall(target / "adapter")
    return target / "adapter"


def reload_difference(adapter: Path, recording: Path) -> float:
    """Largest difference between the live policy's actions and the adapter's, loaded in a clean process.

    Imitators are compared on an episode of ``recording``; who learned by reinforcement brings what it saw along.
    """
    episode = json.loads((adapter / "manifest.json").read_text())["probe"]["episode"]
    argv = [sys.executable, "-m", "gpu_runtime", "act", "--adapter", str(adapter)]
    if episode is not None:
        argv += ["--dataset", str(recording), "--episode", str(episode)]
    done = subprocess.run(argv, cwd=env.REPOSITORY, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise RuntimeError(f"act ended with status {done.returncode}: {done.stderr[-2000:]}")
    report = json.loads(done.stdout.strip().splitlines()[-1])
    if "error" in report:
        raise RuntimeError(f"act: {report['error']}")
    return float(report["max_difference"])
