from django.db import migrations


def add(apps, editor):
    from tenants.quotas.seeds import add_missing_limits

    add_missing_limits(apps.get_model("quotas", "DefaultQuota"))


class Migration(migrations.Migration):
    dependencies = [("quotas", "0002_initial")]
    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
