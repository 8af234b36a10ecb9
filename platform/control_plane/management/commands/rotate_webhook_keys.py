"""`manage.py rotate_webhook_keys`: encrypt every webhook secret anew with the newest key of the ring."""

from typing import Any

from django.core.management.base import BaseCommand

from tenants.webhooks.sealing import reseal_all


class Command(BaseCommand):
    help = "Run it after a new key came first in JOYNEXUS_WEBHOOK_KEYS; then the former keys may go."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"{reseal_all()} endpoints are sealed with the newest key")
