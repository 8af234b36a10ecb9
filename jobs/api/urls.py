"""Routes of the jobs app under /api/v1/."""

from django.urls import path

from jobs.api import artifacts, dataset_jobs, estimate, evaluation, jobs, logs, retry, runtime, streams

urlpatterns = [
    path("jobs", jobs.JobListApi.as_view()),
    path("jobs/bulk", jobs.JobBulkApi.as_view()),
    path("jobs/estimate", estimate.JobEstimateApi.as_view()),
    path("jobs/<uuid:job_id>", jobs.JobApi.as_view()),
    path("jobs/<uuid:job_id>/cancel", jobs.JobCancelApi.as_view()),
    path("jobs/<uuid:job_id>/dataset-import", jobs.JobImportApi.as_view()),
    path("jobs/<uuid:job_id>/events", streams.JobEventsApi.as_view()),
    path("jobs/<uuid:job_id>/logs", logs.JobLogsApi.as_view()),
    path("jobs/<uuid:job_id>/retry", retry.JobRetryApi.as_view()),
    path("jobs/<uuid:job_id>/metrics", streams.JobMetricsApi.as_view()),
    path("jobs/<uuid:job_id>/artifacts", artifacts.JobArtifactsApi.as_view()),
    path("jobs/<uuid:job_id>/evaluation", evaluation.JobEvaluationApi.as_view()),
    path("jobs/<uuid:job_id>/policy-versions", artifacts.JobPolicyVersionsApi.as_view()),
    path("artifacts", artifacts.ArtifactListApi.as_view()),
    path("artifacts/<uuid:artifact_id>", artifacts.ArtifactApi.as_view()),
    path("artifacts/<uuid:artifact_id>/download", artifacts.ArtifactDownloadApi.as_view()),
    path("dataset-versions/<uuid:version_id>/jobs", dataset_jobs.DatasetVersionJobsApi.as_view()),
    path("bases", runtime.BaseListApi.as_view()),
    path("runtime", runtime.RuntimeApi.as_view()),
]
