"""`manage.py demo`: record, upload, fine-tune together, export, check. The last line of stdout is the summary."""

import json
import subprocess
import time
from argparse import ArgumentParser
from pathlib import Path

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from control_plane.conf import environment as env
from control_plane.demo.embedded import platform_running
from control_plane.demo.labs import Lab, labs_ready
from control_plane.demo.progress import say
from control_plane.demo.recordings import RecordingFailed, SimulatorMissing, record_all
from control_plane.demo.run import follow, measure, serve_until_interrupted, submit_all
from control_plane.demo.scenario import MANISKILL, PUSHT, Participant
from control_plane.demo.summary import Summary


class Command(BaseCommand):
    help = "Two tenants fine-tune policies on simulator demonstrations, together, end to end."

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
                summary = self._run(labs, url, started_s)
                if not end:
                    self._show(summary)
                    serve_until_interrupted(url, labs, alive)
        except KeyboardInterrupt:
            say("stopped")
            return
        except (RecordingFailed, RuntimeError) as error:
            raise CommandError(str(error)) from error
        self._finish(summary)

    def _run(self, labs: dict[str, Lab], url: str, started_s: float) -> Summary:
        state = env.state_dir()
        say("Recording demonstrations")
        recordings = _recordings(state / "recordings")
        say("Uploading datasets and submitting one job per tenant")
        submitted = submit_all(recordings, labs, url)
        for item in submitted:
            say(f"  watch it at {url}/jobs/{item.job['id']}/")
        say("Training together on one resident base")
        jobs = follow(submitted)
        say("Collecting figures, reloading the adapters in a clean process")
        return measure(submitted, jobs, started_s=started_s, folder=state / "adapters")

    def _show(self, summary: Summary) -> None:
        for tenant in summary.tenants:
            share = tenant.busy_us / summary.busy_us if summary.busy_us else 0.0
            say(
                f"\n{tenant.name} ({tenant.head} head)\n"
                f"  loss                    {tenant.loss_first:.4f} -> {tenant.loss_last:.4f}\n"
                f"  held-out action error   {tenant.action_error:.4f} (mean action: {tenant.baseline_error:.4f})\n"
                f"  mean group size         {tenant.group_size_mean:.2f}\n"
                f"  share of compute time   {share:.1%} ({tenant.busy_us / 1e6:.1f} s)\n"
                f"  price                   {tenant.cost:.4f} {tenant.currency}\n"
                f"  adapter                 {tenant.adapter} (reloads within {tenant.reload_max_diff:.1e})"
            )
        for failure in summary.failures():
            say(f"CHECK FAILED: {failure}")

    def _finish(self, summary: Summary) -> None:
        self._show(summary)
        self.stdout.write(json.dumps(summary.as_json()))
        if summary.failures():
            raise SystemExit(1)


def _recordings(folder: Path) -> dict[Participant, Path]:
    """ManiSkill's, or PushT's where no simulator can render, with the reason said."""
    try:
        return record_all(MANISKILL, folder)
    except SimulatorMissing as error:
        say(f"ManiSkill cannot run on this machine: {error}")
    check = ["bash", "deploy/system-packages.sh", "--check"]
    missing = subprocess.run(check, cwd=env.REPOSITORY, capture_output=True, text=True, check=False)
    for line in (missing.stdout + missing.stderr).splitlines():
        say(f"  {line}")
    say("The same job runs on PushT instead, which is pure Python: a pusher and a block in the plane, no robot arm.")
    return record_all(PUSHT, folder)
