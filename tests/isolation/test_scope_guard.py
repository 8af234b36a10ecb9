"""No row of a tenant is read or written outside a scope, or in a foreign one."""

import pytest
from django.apps import apps
from django_scopes.exceptions import ScopeError

from tenants.audit.models import AuditEvent
from tenants.datasets.models import Dataset
from tenants.models import Tenant
from tenants.scope import TenantOwned, platform_scope, tenant_scope
from tests.support.factories import DatasetFactory
from tests.support.story import Story

OURS = ("tenants", "audit", "quotas", "datasets", "billing", "webhooks", "jobs")
MODELS = [model for model in apps.get_models() if model._meta.app_label in OURS]
OWNED = [model for model in MODELS if issubclass(model, TenantOwned)]
# Tables of the platform itself. A new table is either tenant-owned or listed here with its reason.
PLATFORM = {
    "AuditEvent": "an act on a tenant or on the platform; its manager is scoped all the same",
    "DefaultQuota": "limits of every tenant that has none of its own",
    "User": "a person may belong to several tenants",
    "Tenant": "the boundary itself",
    "PricePlan": "a plan may have several tenants on it",
    "PriceVersion": "prices are the same for everybody on a plan",
    "PriorityFactor": "so are the factors of priorities",
    "InvoiceSequence": "invoices of all tenants are numbered in one row",
    "ReconciliationRun": "compares everybody's books; operators only",
    "ReconciliationDifference": "operators only",
    "OutboxMessage": "holds ids only",
    "RuntimeCursor": "how far the relay is",
    "RuntimeSnapshot": "the shared runtime's status",
    "DeviceSpan": "measured time of the shared device; operators only",
}

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_table_is_tenant_owned_or_declared_the_platforms(model):
    assert issubclass(model, TenantOwned) != (model.__name__ in PLATFORM)


@pytest.mark.parametrize("model", OWNED, ids=lambda model: model.__name__)
def test_every_tenant_owned_model_has_its_own_tenant_that_is_never_null(model):
    field = model._meta.get_field("tenant")
    assert field.related_model is Tenant
    assert not field.null


@pytest.mark.parametrize("model", [*OWNED, AuditEvent], ids=lambda model: model.__name__)
def test_a_query_outside_a_scope_raises(model):
    reads = [
        lambda: list(model.objects.all()),
        lambda: model.objects.filter(pk=None).first(),
        lambda: model.objects.count(),
        lambda: model.objects.exists(),
        lambda: list(model.objects.exclude(pk=None)),
        lambda: model.objects.get(pk=None),
        lambda: model.objects.update(),
        lambda: model.objects.filter(pk=None).delete(),
    ]
    for read in reads:
        with pytest.raises(ScopeError):
            read()


def test_a_scope_shows_the_rows_of_its_tenant_only(story: Story):
    mine, foreign = DatasetFactory(tenant=story.alice.tenant), DatasetFactory(tenant=story.charlie.tenant)
    with tenant_scope(story.alice.tenant):
        assert list(Dataset.objects.all()) == [mine]
        assert not Dataset.objects.filter(pk=foreign.pk).exists()
    with platform_scope():
        assert Dataset.objects.count() == 2


def test_a_row_of_another_tenant_is_not_written_in_a_scope(story: Story):
    foreign = DatasetFactory(tenant=story.charlie.tenant)
    with tenant_scope(story.alice.tenant):
        with pytest.raises(ScopeError, match="inside the scope of"):
            Dataset.objects.create(tenant=story.charlie.tenant, name="planted")
        with pytest.raises(ScopeError):
            foreign.save()


def test_a_scope_of_no_tenant_is_an_error_not_everything():
    with pytest.raises(TypeError, match="needs a tenant"):
        tenant_scope(None)
