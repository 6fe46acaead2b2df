"""Tasks on tensors of any shape: classification and regression."""

from fedsim.tasks.tensors.classification import TensorClassification
from fedsim.tasks.tensors.regression import TensorRegression

__all__ = ["TensorClassification", "TensorRegression"]
