"""The list of jobs: the table, its CSV, and what is done to several jobs at once."""

from frontend.views.jobs.acts import jobs_act_page
from frontend.views.jobs.sheet import jobs_csv
from frontend.views.jobs.table import job_table

__all__ = ["job_table", "jobs_act_page", "jobs_csv"]
