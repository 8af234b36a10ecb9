"""The form that submits a job: the page, the fields that a choice brings, the estimate beside them."""

from frontend.views.new_job.page import job_new, job_new_estimate, job_new_fields

__all__ = ["job_new", "job_new_estimate", "job_new_fields"]
