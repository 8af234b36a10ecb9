"""REST: monthly budgets and what is left of them."""

from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, inline_serializer
from pydantic import Field
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.ordering import AmountText
from tenants.access import access_row
from tenants.billing.budgets import services as budgets
from tenants.billing.budgets.reads import BudgetState, budget_list, budget_states
from tenants.billing.models import Budget
from tenants.billing.usage.api import MoneyOutput, money
from tenants.billing.usage.periods import month_of
from tenants.bodies import parse_body
from tenants.idempotency import KEY_PARAMETER, idempotent
from tenants.listing import ListView, PageQuery, refuse_query
from tenants.permissions import Permission
from tenants.preconditions import MATCH_PARAMETER, etag_of, require_match, tagged
from tenants.requests import TenantRequest
from tenants.selectors import project_for

Amount = Annotated[AmountText, Field(description="Money per calendar month (UTC), in the tenant's currency.")]
Hard = Annotated[bool, Field(description="Jobs are stopped and refused when it is used up.")]


class BudgetInput(Message):
    """A budget of the whole tenant, or of one project."""

    amount: Amount
    project: Annotated[str | None, Field(max_length=50, description="Slug; null for the tenant as a whole.")] = None
    hard: Hard = False


class BudgetChange(Message):
    """What to change."""

    amount: Amount | None = None
    hard: Hard | None = None


BudgetOutput = inline_serializer(
    "Budget",
    {
        "id": serializers.UUIDField(),
        "project": serializers.CharField(allow_null=True, help_text="Slug; null for the tenant as a whole."),
        "amount": MoneyOutput,
        "hard": serializers.BooleanField(),
        "month": serializers.DateField(help_text="First day of the month the figures are of."),
        "spent": MoneyOutput,
        "reserved": MoneyOutput,
        "left": MoneyOutput,
        "alerts": serializers.ListField(child=serializers.IntegerField(), help_text="Percents passed this month."),
        "version": serializers.IntegerField(help_text="The ETag of a single budget."),
        "created_at": serializers.DateTimeField(),
    },
)


class _BudgetPage(serializers.BaseSerializer[Any]):
    """Rows of a page, all at once: their sums take a fixed number of queries."""

    def to_representation(self, instance: BudgetState) -> dict[str, object]:
        return _told(instance)


class BudgetListApi(ListView):
    """Budgets in force, newest first."""

    permission = {"GET": Permission.BILLING_READ, "POST": Permission.BILLING_MANAGE}
    serializer_class = _BudgetPage

    def rows(self, request: TenantRequest, query: PageQuery) -> QuerySet[Budget]:
        return _budgets(request)

    def paginate_queryset(self, queryset: Any) -> Any:
        return budget_states(super().paginate_queryset(queryset) or [], month_of(timezone.now()))

    @extend_schema(operation_id="budgets_list", responses=BudgetOutput.__class__(many=True))
    def get(self, request: TenantRequest) -> Response:
        return self.list(request)

    @extend_schema(
        operation_id="budgets_create", parameters=[KEY_PARAMETER], request=BudgetInput, responses={201: BudgetOutput}
    )
    def post(self, request: TenantRequest) -> Response:
        """409 if the tenant, or the project, has a budget."""
        refuse_query(request)
        body = parse_body(BudgetInput, request.data)

        def create() -> Response:
            actor = request.actor
            project = project_for(actor, body.project) if body.project is not None or actor.project else None
            budget = budgets.budget_create(by=actor, project=project, amount=Decimal(body.amount), hard=body.hard)
            return Response(_state(budget), status=201, headers={"ETag": etag_of(budget.version)})

        return idempotent(request, create)


class BudgetApi(APIView):
    """One budget. Changing it needs the ETag of GET."""

    permission = {
        "GET": Permission.BILLING_READ,
        "PATCH": Permission.BILLING_MANAGE,
        "DELETE": Permission.BILLING_MANAGE,
    }

    @extend_schema(operation_id="budgets_get", responses=BudgetOutput)
    def get(self, request: TenantRequest, budget_id: UUID) -> Response:
        refuse_query(request)
        budget = access_row(_budgets(request), "budget", pk=budget_id)
        return tagged(request, budget.version, _state(budget))

    @extend_schema(
        operation_id="budgets_change", parameters=[MATCH_PARAMETER], request=BudgetChange, responses=BudgetOutput
    )
    def patch(self, request: TenantRequest, budget_id: UUID) -> Response:
        """In force at once: a raise lets jobs in again, a cut may stop them."""
        refuse_query(request)
        body = parse_body(BudgetChange, request.data)
        with transaction.atomic():
            access_row(_budgets(request), "budget", pk=budget_id)
            budget = budgets.budget_for_update(request.tenant, budget_id)
            require_match(request, budget.version)
            amount = Decimal(body.amount) if body.amount is not None else None
            budget = budgets.budget_change(by=request.actor, budget=budget, amount=amount, hard=body.hard)
        return Response(_state(budget), headers={"ETag": etag_of(budget.version)})

    @extend_schema(operation_id="budgets_end", parameters=[MATCH_PARAMETER], responses={204: None})
    def delete(self, request: TenantRequest, budget_id: UUID) -> Response:
        refuse_query(request)
        with transaction.atomic():
            access_row(_budgets(request), "budget", pk=budget_id)
            budget = budgets.budget_for_update(request.tenant, budget_id)
            require_match(request, budget.version)
            budgets.budget_end(by=request.actor, budget=budget)
        return Response(status=204)


def _budgets(request: TenantRequest) -> QuerySet[Budget]:
    """Budgets in force; for a key bound to a project there is only that project's."""
    rows = budget_list(request.tenant)
    return rows.filter(project=request.actor.project) if request.actor.project is not None else rows


def _state(budget: Budget) -> dict[str, object]:
    return _told(budget_states([budget], month_of(timezone.now()))[0])


def _told(state: BudgetState) -> dict[str, object]:
    budget = state.budget
    currency = budget.tenant.currency
    return {
        "id": str(budget.pk),
        "project": budget.project.slug if budget.project else None,
        "amount": money(budget.amount, currency),
        "hard": budget.hard,
        "month": month_of(timezone.now()).isoformat(),
        "spent": money(state.spent, currency),
        "reserved": money(state.reserved, currency),
        "left": money(state.left, currency),
        "alerts": list(state.told),
        "version": budget.version,
        "created_at": budget.created_at,
    }
