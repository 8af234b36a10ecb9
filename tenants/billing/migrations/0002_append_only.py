"""Default prices, then the triggers that make the money tables append-only."""

from django.db import migrations

from tenants.billing import seeds, triggers


def forwards(apps, editor):
    seeds.add_missing_prices(apps.get_model("billing", "PriceVersion"))
    triggers.install(editor)


def backwards(apps, editor):
    triggers.remove(editor)


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]
    operations = [migrations.RunPython(forwards, backwards)]
