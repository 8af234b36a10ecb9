"""Operators' view of money: prices can be announced, nothing can be changed or deleted."""

from datetime import datetime

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from tenants.admin import ReadOnly
from tenants.billing.models import PriceVersion, RatedUsage, UsageEvent


class PriceForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = PriceVersion
        fields = ["meter", "amount", "per", "currency", "valid_from"]

    def clean_valid_from(self) -> datetime:
        """What already happened is never priced anew."""
        valid_from: datetime = self.cleaned_data["valid_from"]
        if valid_from <= timezone.now():
            raise forms.ValidationError("A price must start in the future.")
        return valid_from


@admin.register(PriceVersion)
class PriceVersionAdmin(ReadOnly):
    list_display = ["meter", "amount", "per", "currency", "valid_from", "created_at"]
    list_filter = ["meter"]
    ordering = ["meter", "-valid_from"]
    form = PriceForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.add_priceversion"))


@admin.register(UsageEvent)
class UsageEventAdmin(ReadOnly):
    list_display = ["occurred_at", "tenant", "job_id", "meter", "quantity", "billable", "reason"]
    list_filter = ["meter", "billable"]
    list_select_related = ["tenant"]
    search_fields = ["=job_id", "=event_id", "tenant__name"]
    show_full_result_count = False


@admin.register(RatedUsage)
class RatedUsageAdmin(ReadOnly):
    list_display = ["event", "tenant", "job_id", "amount", "currency", "price"]
    list_select_related = ["tenant", "event", "price"]
    search_fields = ["=job_id", "tenant__name"]
    show_full_result_count = False
