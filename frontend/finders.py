"""Serve plotly.js out of the plotly wheel: exactly that one file, nothing else of the package."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import plotly
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

URL_PATH = "vendor/plotly/plotly.min.js"
_FOLDER = Path(plotly.__file__).parent / "package_data"


class _OneFile(FileSystemStorage):
    """Maps the public path to the file in the wheel."""

    prefix = ""

    def path(self, name: str) -> str:
        return str(_FOLDER / Path(name).name)


class PlotlyFinder(BaseFinder):
    """A staticfiles finder for ``vendor/plotly/plotly.min.js``."""

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        if path != URL_PATH:
            return []
        found = str(_FOLDER / "plotly.min.js")
        return [found] if find_all else found

    def check(self, **kwargs: Any) -> Sequence[Any]:  # type: ignore[override]
        return []

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:
        yield URL_PATH, _OneFile(location=str(_FOLDER))
