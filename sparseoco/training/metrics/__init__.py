"""Metrics, defined once: of predictions (`scores`), of rankings (`ranking`)."""
