"""`manage.py relay`: bring the runtime's journal into the database until told to stop."""

import signal
from typing import Any

from django.core.management.base import BaseCommand

from jobs import runtime_client
from jobs.relay import Relay


class Command(BaseCommand):
    help = "Apply the GPU runtime's journal to the database, exactly once, and wake live pages."

    def handle(self, *args: Any, **options: Any) -> None:
        relay = Relay(runtime_client.connect())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: relay.stop())
        self.stdout.write("relay: started")
        relay.run()
        self.stdout.write("relay: stopped")
