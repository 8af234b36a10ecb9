"""The database refuses changes of final invoices and their lines."""

from django.db import migrations

from tenants.billing import frozen


def forwards(apps, editor):
    frozen.install(editor)


def backwards(apps, editor):
    frozen.remove(editor)


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_usage_of_keys")]
    operations = [migrations.RunPython(forwards, backwards)]
