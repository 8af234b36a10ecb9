"""`manage.py demo`: four tenants, four stages, one base, then the figures. The last line of stdout is the summary."""

import json
import os
import subprocess
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from control_plane.conf import environment as env
from control_plane.demo.embedded import platform_running
from control_plane.demo.figures import measure
from control_plane.demo.labs import Lab, labs_ready
from control_plane.demo.participants import MANISKILL, PURE_PYTHON
from control_plane.demo.progress import say
from control_plane.demo.recordings import RecordingFailed, SimulatorMissing, record_all
from control_plane.demo.report import show
from control_plane.demo.scenario import Demonstrations, Participant
from control_plane.demo.stages import Stage, open_runs, run_stage
from control_plane.demo.summary import Summary
from joynexus_client import JoyNexusError

_HEADLINES = {
    Stage.START: "Making the policies to begin with: weak ones for reinforcement, an untrained one for imitation",
    Stage.BEFORE: "Evaluating them on fixed fresh seeds",
    Stage.MAIN: "Three tenants learn by reinforcement and one by imitation, together on one resident base",
    Stage.AFTER: "Evaluating what they have learned, on the same seeds",
}


class Command(BaseCommand):
    help = "Four tenants improve policies in simulators, together on one base, end to end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--exit", action="store_true", dest="end", help="stop after the summary")
        parser.add_argument("--port", type=int, help="port of the console (default: 8000, or a free one)")

    def handle(self, *args: object, end: bool, port: int | None, **options: object) -> None:
        started_s = time.monotonic()
        state = env.state_dir()
        say(f"Starting the platform (state in {state})")
        call_command("migrate", interactive=False, verbosity=0)
        try:
            with platform_running(port, state / "logs" / "platform.log") as (url, alive):
                say(f"  the console is at {url}")
                labs = labs_ready(MANISKILL, url, state / "demo.json")
                for lab in labs.values():
                    say(f"  log in as {lab.email}, password {lab.password}")
                summary = _run(labs, url, started_s)
                show(summary)
                if not end:
                    _serve_until_interrupted(url, labs, alive)
        except KeyboardInterrupt:
            say("stopped")
            return
        except (RecordingFailed, JoyNexusError, RuntimeError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(summary.as_json()))
        if summary.failures():
            raise SystemExit(1)


def _run(labs: dict[str, Lab], url: str, started_s: float) -> Summary:
    state = env.state_dir()
    say("Recording demonstrations")
    participants, recordings = _recordings(state / "recordings")
    say("Uploading demonstrations")
    runs = open_runs(participants, recordings, labs, url)
    for stage in Stage:
        stage_started_s = time.monotonic()
        say(_HEADLINES[stage])
        run_stage(runs, stage, url)
        say(f"  done in {time.monotonic() - stage_started_s:.0f} s")
    say("Collecting figures, reloading the adapters in a clean process")
    return measure(runs, started_s=started_s, folder=state / "adapters")


def _recordings(folder: Path) -> tuple[tuple[Participant, ...], dict[Demonstrations, Path]]:
    """ManiSkill's and MuJoCo's, or those of pure Python where a simulator cannot run, with the reason said."""
    try:
        return MANISKILL, record_all([who.demonstrations for who in MANISKILL], folder)
    except SimulatorMissing as error:
        say(f"A simulator cannot run on this machine: {error}")
    check = ["bash", "deploy/system-packages.sh", "--check"]
    missing = subprocess.run(check, cwd=env.REPOSITORY, capture_output=True, text=True, check=False)
    for line in (missing.stdout + missing.stderr).splitlines():
        say(f"  {line}")
    say("The same four jobs run on Reach and PushT instead, which are pure Python: points and blocks in the plane.")
    return PURE_PYTHON, record_all([who.demonstrations for who in PURE_PYTHON], folder)


def _serve_until_interrupted(url: str, labs: dict[str, Lab], alive: Callable[[], bool]) -> None:
    """Keep the platform up for a look around."""
    say(f"\nThe console is at {url}. Log in as:")
    for lab in labs.values():
        say(f"  {lab.email}  {lab.password}")
    say("Ctrl-C stops everything.")
    while alive():
        time.sleep(1.0)
    raise RuntimeError(f"the platform ended; its log is in {os.fspath(env.state_dir() / 'logs')}")
