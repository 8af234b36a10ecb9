"""The triggers that make the audit log append-only."""

from django.db import migrations

from tenants import append_only

TABLES = ("audit_auditevent",)


def forwards(apps, editor):
    append_only.install(editor, TABLES)


def backwards(apps, editor):
    append_only.remove(editor, TABLES)


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_initial")]
    operations = [migrations.RunPython(forwards, backwards)]
