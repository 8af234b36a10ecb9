"""What the charts of a job's page are: which cards there are, and what their script starts from."""

from typing import Any

from frontend.charts import board_of
from frontend.charts.model import Chart
from jobs.models import Job
from tenants.requests import PageRequest

# The card of a series that no board knows: the script fills in its name.
OTHER = Chart(id="", title="{title}", unit="", curves=())


def charts_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """For console/parts/charts.html, which also brings the data of js/job-board.js with it."""
    board = board_of(job.kind)
    groups = board.for_spec(job.spec)
    return {
        "groups": groups,
        "other": OTHER,
        "charts": {
            "id": str(job.pk),
            "kind": job.kind,
            "unit": board.unit,
            "axes": [{"value": value, "words": words} for value, words in board.axes],
            "began": job.started_at.timestamp() if job.started_at else None,
            "charts": [chart.as_json(job.spec) for group in groups for chart in group.charts],
        },
    }
