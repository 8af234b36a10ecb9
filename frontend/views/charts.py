"""What the charts of a job's page are: which cards there are, and what their script starts from."""

from typing import Any

from frontend.charts import board_of
from jobs.models import Job
from tenants.requests import PageRequest


def charts_context(request: PageRequest, job: Job) -> dict[str, Any]:
    """For console/parts/charts.html, which also brings the data of js/job-board.js with it."""
    board = board_of(job.kind)
    groups = board.for_spec(job.spec)
    return {
        "board": board,
        "groups": groups,
        "charts": {
            "id": str(job.pk),
            "unit": board.unit,
            "charts": [chart.as_json(job.spec) for group in groups for chart in group.charts],
        },
    }
