"""The server's answers as typed dictionaries; the OpenAPI document at /api/v1/schema is the full account."""

from joynexus_client.answers.datasets import Version
from joynexus_client.answers.evaluation import Episode, EvaluationReport, SuccessRate, SuiteTotals, TaskResult, Totals
from joynexus_client.answers.jobs import (
    CostRange,
    DatasetImport,
    Estimate,
    EstimateCost,
    EstimateLine,
    Job,
    JobBudget,
    JobKind,
    PolicyRef,
    QueuePlace,
    Quota,
)
from joynexus_client.answers.money import Money, Plan, PriceList, PriceRow, UsageGroup, UsageRow
from joynexus_client.answers.streams import (
    Artifact,
    ArtifactKind,
    Event,
    EventPage,
    MetricsPage,
    PolicyVersion,
    Series,
)

__all__ = [
    "Artifact",
    "ArtifactKind",
    "CostRange",
    "DatasetImport",
    "Episode",
    "Estimate",
    "EstimateCost",
    "EstimateLine",
    "EvaluationReport",
    "Event",
    "EventPage",
    "Job",
    "JobBudget",
    "JobKind",
    "MetricsPage",
    "Money",
    "Plan",
    "PolicyRef",
    "PolicyVersion",
    "PriceList",
    "PriceRow",
    "QueuePlace",
    "Quota",
    "Series",
    "SuccessRate",
    "SuiteTotals",
    "TaskResult",
    "Totals",
    "UsageGroup",
    "UsageRow",
    "Version",
]
