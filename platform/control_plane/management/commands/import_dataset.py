"""`manage.py import_dataset`: take in a folder or zip archive that already lies on this server. For operators."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpu_runtime.protocol.schema import Declared
from tenants.bodies import parse_body
from tenants.datasets.services import dataset_import
from tenants.datasets.tasks import validate_dataset
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import tenant_scope


class Command(BaseCommand):
    help = "Import a LeRobot v2.1 or v3.0 folder or zip for a tenant; prints JSON."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", type=Path)
        parser.add_argument("--tenant", required=True, help="slug of the tenant")
        parser.add_argument("--name", required=True, help="name of the dataset; an existing one gets a new version")
        parser.add_argument("--declared", default="{}", help="what the files do not say, as JSON")
        parser.add_argument("--now", action="store_true", help="validate here instead of in a worker")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            slugs = ", ".join(Tenant.objects.order_by("slug").values_list("slug", flat=True)) or "none yet"
            raise CommandError(f"--tenant {options['tenant']!r} is unknown; there are: {slugs}")
        try:
            declared = parse_body(Declared, json.loads(options["declared"]), at="--declared")
            version = dataset_import(
                tenant=tenant, actor=None, name=options["name"], source=options["source"].resolve(), declared=declared
            )
        except (ApplicationError, ValueError) as error:
            raise CommandError(str(error)) from error
        if options["now"]:
            validate_dataset(str(version.pk))
        with tenant_scope(tenant):
            version.refresh_from_db()
        answer = {"version_id": str(version.pk), "state": version.state, "reason": version.reason}
        self.stdout.write(json.dumps(answer))
