"""Pages of datasets: the list, one dataset with its episodes, uploads, and what may be done to them."""

from frontend.views.datasets.acts import dataset_keep, dataset_remove, version_remove
from frontend.views.datasets.listing import dataset_table
from frontend.views.datasets.one import dataset_page
from frontend.views.datasets.spread import dataset_spread
from frontend.views.datasets.upload import dataset_upload

__all__ = [
    "dataset_keep",
    "dataset_page",
    "dataset_remove",
    "dataset_spread",
    "dataset_table",
    "dataset_upload",
    "version_remove",
]
