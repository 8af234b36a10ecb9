"""The whole platform as `manage.py up` runs it, in a folder of its own, for fault and browser tests."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from joynexus_client import Client
from tests.support.demonstrations import make_dataset

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 90.0
_COMPUTE_METERS = {
    "training": "train.compute_us",
    "inference": "predict.compute_us",
    "environment": "env.compute_us",
}
_STARTED = re.compile(r"^supervisor\s+\| (\w+) started, process (\d+)$", re.MULTILINE)


class Stack:
    """Start it, kill its parts, look at its log, stop it. ``servers`` are addresses of real ones, by variable."""

    def __init__(self, state: Path, servers: Mapping[str, str] | None = None) -> None:
        self.state = state
        self._servers = dict(servers or {})
        self.log = state / "up.log"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("JOYNEXUS_", "DJANGO_"))}
        for name in ("DATABASE_URL", "REDIS_URL"):
            inherited.pop(name, None)
        fixed = {"OMP_NUM_THREADS": "1", "JOYNEXUS_RUNTIME_MAX_TOKENS_PER_FORWARD": "768"}  # nothing is measured
        return inherited | {"JOYNEXUS_STATE": str(self.state)} | fixed | self._servers

    def start(self) -> None:
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(self.port)],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        raise AssertionError("not ready:\n" + self.log.read_text()[-4000:])

    def stop(self) -> float:
        """SIGTERM; the seconds until everything has ended."""
        assert self._process is not None
        started_s = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(15)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        return time.monotonic() - started_s

    def pid(self, name: str) -> int:
        """The newest process of a program."""
        return int([pid for who, pid in _STARTED.findall(self.log.read_text()) if who == name][-1])

    def kill(self, name: str) -> int:
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lab(self, name: str) -> dict[str, str]:
        """A new tenant with its owner's log-in and API key."""
        email = f"{name.replace(' ', '-').lower()}@example.invalid"
        return json.loads(self.manage("bootstrap", "--tenant", name, "--email", email).strip().splitlines()[-1])

    def client(self, lab: dict[str, str]) -> Client:
        return Client(self.url, lab["api_key"])


def upload_demonstrations(client: Client, folder: Path, *, cameras: int = 1, action_dim: int = 4) -> str:
    """A small learnable dataset of this client's tenant; the id of its ready version."""
    path = folder / f"demonstrations-{cameras}-{action_dim}"
    if not path.exists():
        make_dataset(path, episodes=10, cameras=cameras, state_dim=5, action_dim=action_dim, image_size=32)
    version = client.datasets.upload(path, name=f"{cameras} cameras")
    return str(client.datasets.wait_ready(version["id"], timeout_s=120)["id"])


def sft_spec(
    version_id: str, *, name: str = "job", steps: int = 60, head: str = "mlp", **training: Any
) -> dict[str, Any]:
    """A job that takes some seconds."""
    heads: dict[str, dict[str, Any]] = {
        "mlp": {"type": "mlp", "horizon": 4, "width": 64, "pca_dims": 16, "pca_frames": 32},
        "gr00t": {
            **{"type": "gr00t", "horizon": 4, "tap": "vision", "width": 32, "layers": 2, "heads": 2},
            **{"output_width": 32, "future_tokens": 2, "noise_draws": 1, "dropout": 0.0},
        },
    }
    return {
        "kind": "sft",
        "name": name,
        "base_model": "tiny-qwen3-vl",
        "head": heads[head],
        "dataset": {"id": version_id, "image_size": 32},
        "training": {"steps": steps, "batch_size": 4, "evaluate_every": 20, "checkpoint_every": 10} | training,
        "optimizer": {"lr": 1e-3, "warmup_steps": 5},
    }


def assert_measured_is_metered(stack: Stack) -> None:
    """To the microsecond, in the database: spans balance, and what tenants were metered is what was measured."""
    with sqlite3.connect(stack.state / "control-plane.sqlite3") as books:
        (unbalanced,) = books.execute(
            "SELECT count(*) FROM jobs_devicespan WHERE busy_us <> overhead_us +"
            " (SELECT coalesce(sum(value), 0) FROM json_each(shares))"
        ).fetchone()
        measured = dict(
            books.execute(
                "SELECT service, sum(busy_us - overhead_us) FROM jobs_devicespan GROUP BY service"
            ).fetchall()
        )
        metered = dict(books.execute("SELECT meter, sum(quantity) FROM billing_usageevent GROUP BY meter").fetchall())
    assert unbalanced == 0
    assert measured.keys() <= _COMPUTE_METERS.keys()
    for service, meter in _COMPUTE_METERS.items():
        assert metered.get(meter, 0) == measured.get(service, 0), service


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
