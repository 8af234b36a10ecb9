"""Validate a dataset directory: every defect names file, episode, frame and feature; nothing here raises."""

from gpu_runtime.data.validation.report import validate_dataset

__all__ = ["validate_dataset"]
