"""What the runtime API answers: base models and services."""

from typing import Any

from rest_framework import serializers


class BaseInfoOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    revision = serializers.CharField()
    parameters = serializers.IntegerField()
    hidden_size = serializers.IntegerField()
    layers = serializers.IntegerField()
    dtype = serializers.CharField()
    device = serializers.CharField()
    random_weights = serializers.BooleanField()


class BaseOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    random_weights = serializers.BooleanField(help_text="A test base: what it produces means nothing.")
    resident = serializers.BooleanField(help_text="The runtime has reported it as loaded.")
    info = BaseInfoOutput(allow_null=True)


class BasesOutput(serializers.Serializer[Any]):
    results = BaseOutput(many=True)


class ServiceOutput(serializers.Serializer[Any]):
    service = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField(allow_null=True)
    busy_share = serializers.FloatField(help_text="Busy time over the window, 0 to 1.")
    window_s = serializers.FloatField()
    queue_depth = serializers.IntegerField()
    group_size_mean = serializers.FloatField(allow_null=True)
    latency_p95_ms = serializers.FloatField(allow_null=True, help_text="From request to answer, of inference.")
    seats_used = serializers.IntegerField(allow_null=True, help_text="Environments in use, by whomever.")
    seats_total = serializers.IntegerField(allow_null=True, help_text="Environments there may be at once.")


class RuntimeOutput(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=["ready", "not_accepting", "unreachable", "never_seen"])
    reason = serializers.CharField(allow_blank=True)
    seen_at = serializers.DateTimeField(allow_null=True)
    active_jobs = serializers.IntegerField()
    services = ServiceOutput(many=True, help_text="training, inference, environment")
