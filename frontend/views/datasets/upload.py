"""The page that takes an archive in: in chunks, resumable on another day."""

from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from frontend.views.datasets.storage import storage_context
from frontend.views.page import frame, page
from tenants.datasets.models import Upload, VersionState
from tenants.datasets.resumable import EXPIRES_AFTER
from tenants.datasets.selectors import uploads_under_way, version_list
from tenants.permissions import Permission
from tenants.requests import PageRequest

PARENTS_SHOWN = 200


@require_safe
@page(Permission.DATASETS_WRITE)
def dataset_upload(request: PageRequest) -> HttpResponse:
    """``?dataset=`` names the dataset that gets a new version."""
    uploads = list(uploads_under_way(request.tenant))
    storage = storage_context(request.tenant)
    parents = version_list(request.tenant).filter(state=VersionState.READY).defer("report", "summary")
    context = frame(request, "datasets") | {
        "uploads": [_under_way(upload) for upload in uploads],
        "storage": storage,
        "parents": list(parents[:PARENTS_SHOWN]),
        "name": request.GET.get("dataset", "").replace("\0", "")[:200],
        "live": {
            "api": "/api/v1/uploads",
            "versions": "/api/v1/dataset-versions",
            "page": reverse("frontend:datasets"),
            "chunkBytes": min(settings.JOYNEXUS_CHUNK_MAX_BYTES, 8 * 2**20),
            "maxBytes": storage["upload_max"],
            "freeBytes": storage["free"],
        },
    }
    return render(request, "console/datasets/upload.html", context)


def _under_way(upload: Upload) -> dict[str, Any]:
    return {"upload": upload, "expires_at": upload.touched_at + EXPIRES_AFTER}
