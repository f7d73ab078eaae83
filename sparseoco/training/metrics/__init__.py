"""Metrics, defined once: names and directions (`names`), of predictions (`scores`), of rankings (`ranking`)."""
