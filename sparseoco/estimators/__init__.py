"""The learners as scikit-learn estimators: one configuration each, for pipelines, searches and cross-validation."""

from sparseoco.estimators.classifier import SparseOnlineClassifier
from sparseoco.estimators.regressor import SparseOnlineRegressor

__all__ = ["SparseOnlineClassifier", "SparseOnlineRegressor"]
