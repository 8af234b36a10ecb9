"""The trigger that keeps ready dataset versions as they are."""

from django.db import migrations

from tenants.datasets import sealed


def forwards(apps, editor):
    sealed.install(editor)


def backwards(apps, editor):
    sealed.remove(editor)


class Migration(migrations.Migration):
    dependencies = [("datasets", "0002_initial")]
    operations = [migrations.RunPython(forwards, backwards)]
