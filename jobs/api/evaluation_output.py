"""The parts of an evaluation report that every reader needs, for the API's description."""

from typing import Any

from rest_framework import serializers


class RateOutput(serializers.Serializer[Any]):
    """Successes of counted episodes with the Wilson 95 % interval; null where there was none to judge by."""

    successes = serializers.IntegerField()
    episodes = serializers.IntegerField()
    rate = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)


class TotalsOutput(serializers.Serializer[Any]):
    """Of some tasks together; every counted episode weighs the same."""

    planned = serializers.IntegerField()
    counted = serializers.IntegerField(help_text="Planned episodes less those solved at reset.")
    errors = serializers.IntegerField(help_text="Counted as failures.")  # type: ignore[assignment]  # on the wire
    success_once = RateOutput()
    success_at_end = RateOutput()


class SuiteTotalsOutput(TotalsOutput):
    """Tasks of one suite."""

    suite = serializers.CharField()
    tasks = serializers.ListField(child=serializers.CharField())


class EvaluationOutput(serializers.Serializer[Any]):
    """The report: per task, per suite and overall. An episode that ended with an error counts as a failure."""

    tasks = serializers.ListField(
        child=serializers.DictField(), help_text="One per task: protocol, figures, errors and every episode."
    )
    suites = SuiteTotalsOutput(many=True)
    overall = TotalsOutput()
    protocol_hashes = serializers.ListField(child=serializers.CharField())
