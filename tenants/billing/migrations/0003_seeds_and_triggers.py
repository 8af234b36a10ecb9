"""Default plan and prices, then the triggers that make money append-only and final invoices immutable."""

from django.db import migrations

from tenants import append_only
from tenants.billing import frozen, seeds

TABLES = (
    "billing_priceversion",
    "billing_priorityfactor",
    "billing_tenantplan",
    "billing_usageevent",
    "billing_ratedusage",
    "billing_ledgertransaction",
    "billing_ledgerentry",
)


def forwards(apps, editor):
    seeds.add_missing_prices(apps.get_model("billing", "PricePlan"), apps.get_model("billing", "PriceVersion"))
    append_only.install(editor, TABLES)
    frozen.install(editor)


def backwards(apps, editor):
    frozen.remove(editor)
    append_only.remove(editor, TABLES)


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_initial")]
    operations = [migrations.RunPython(forwards, backwards)]
