"""The learners as scikit-learn estimators: one configuration each, for pipelines, searches and cross-validation."""

from sparseoco.estimators.estimators import SparseOnlineClassifier, SparseOnlineRegressor

__all__ = ["SparseOnlineClassifier", "SparseOnlineRegressor"]
