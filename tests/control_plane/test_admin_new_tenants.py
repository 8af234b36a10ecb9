"""A tenant made on the operators' screen: its owner is there or invited, its bills are in its currency at once."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from tenants.audit.models import AuditEvent
from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import PricePlan, TenantPlan
from tenants.billing.prices.first_plan import REACHES_BACK
from tenants.models import Invitation, Membership, Tenant, User
from tenants.scope import platform_scope
from tests.support.factories import PASSWORD, UserFactory
from tests.support.prices import complete_plan
from tests.support.usage import tell, work

NEW = "/admin/tenant/new/"


def form(**fields: str) -> dict[str, str]:
    return {"name": "Bern Robotics", "email": "Dora@Example.org", "currency": "EUR", "reason": "a contract"} | fields


def link_in_the_letter() -> str:
    return next(line for line in mail.outbox[-1].body.splitlines() if "/invitations/accept/" in line)


def test_whoever_has_no_account_is_invited_to_own_the_new_tenant(
    operator: Client, olga: User, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        answer = operator.post(NEW, form())
    tenant = Tenant.objects.get()
    assert answer["Location"] == f"/admin/tenant/{tenant.pk}/"
    assert (tenant.slug, tenant.currency) == ("bern-robotics", "EUR")
    assert mail.outbox[0].to == ["dora@example.org"]
    assert "The operator of the platform invites you to join Bern Robotics" in mail.outbox[0].body
    joined = Client().post(link_in_the_letter(), {"password": PASSWORD})
    assert joined.status_code == 302
    with platform_scope():
        owner = Membership.objects.select_related("user").get(tenant=tenant)
        acts = list(
            AuditEvent.objects.filter(tenant=tenant).order_by("pk").values_list("verb", "actor_name", "reason")
        )
    assert (owner.user.email, owner.role) == ("dora@example.org", "owner")
    by = olga.email
    assert acts[:2] == [("tenant.created", by, "a contract"), ("invitation.created", by, "a contract")]
    assert acts[2] == ("invitation.accepted", "dora@example.org", "")


def test_whoever_has_an_account_owns_it_at_once(operator: Client):
    UserFactory(email="dora@example.org")
    operator.post(NEW, form())
    with platform_scope():
        assert Membership.objects.get().user.email == "dora@example.org"
        assert not Invitation.objects.exists()


@pytest.mark.parametrize(("fields", "said"), [({"name": "!!!"}, "has no letters"), ({"currency": "USD"}, "USD")])
def test_what_cannot_be_made_is_said_at_the_form_and_leaves_nothing(operator: Client, fields: dict, said: str):
    answer = operator.post(NEW, form(**fields))
    assert (answer.status_code, said in answer.content.decode()) == (200, True)
    assert not Tenant.objects.exists()
    assert not User.objects.filter(email="dora@example.org").exists()


def test_a_tenant_pays_in_the_currency_it_was_made_with(operator: Client):
    since = timezone.now() - REACHES_BACK - timedelta(minutes=1)
    complete_plan("standard-jpy", currency="JPY", since=since, amount="8")
    assert "JPY, plan standard-jpy" in operator.get(NEW).content.decode()
    operator.post(NEW, form(currency="JPY"))
    tenant = Tenant.objects.get()
    with platform_scope():
        row = TenantPlan.objects.select_related("plan").get(tenant=tenant)
    assert (row.plan.code, row.valid_from) == ("standard-jpy", since)
    assert tell(work(tenant, samples=2, occurred_at=timezone.now() - REACHES_BACK)).refused == ()
    assert balance_of(tenant).unbilled == Decimal(16)
    assert "16 JPY" in operator.get(f"/admin/tenant/{tenant.pk}/").content.decode()


def test_a_plan_that_lacks_a_price_or_is_too_new_is_not_offered(operator: Client):
    complete_plan("too-new", currency="JPY", since=timezone.now() - REACHES_BACK + timedelta(minutes=1), amount="1")
    old = timezone.now() - timedelta(days=1)
    complete_plan("lacks", currency="USD", since=old, amount="1", but="env.steps")
    PricePlan.objects.create(code="empty", name="empty", currency="GBP")
    page = operator.get(NEW)
    assert [value for value, _ in page.context["form"].fields["currency"].choices] == ["EUR"]


def test_an_owner_can_be_invited_again(operator: Client, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        operator.post(NEW, form())
        tenant = Tenant.objects.get()
        page = f"/admin/tenant/{tenant.pk}/owner/"
        assert "has an open invitation" in operator.post(page, form()).content.decode()
        assert operator.post(page, form(email="emil@example.org")).status_code == 302
    assert [letter.to for letter in mail.outbox] == [["dora@example.org"], ["emil@example.org"]]
    with platform_scope():
        assert set(Invitation.objects.values_list("role", flat=True)) == {"owner"}


def test_the_list_of_tenants_leads_to_the_screen_and_staff_without_the_right_make_none(
    operator: Client, onlooker: Client
):
    assert "/admin/tenants/tenant/add/" in operator.get("/admin/tenants/tenant/").content.decode()
    assert operator.get("/admin/tenants/tenant/add/")["Location"] == NEW
    assert "/admin/tenants/tenant/add/" not in onlooker.get("/admin/tenants/tenant/").content.decode()
    assert onlooker.post(NEW, form()).status_code == 403
    assert not Tenant.objects.exists()
