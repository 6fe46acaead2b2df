"""Image classification, the task of the library's own data sets."""

from fedsim.tasks.images.classification import ImageClassification

__all__ = ["ImageClassification"]
