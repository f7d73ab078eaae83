"""Documents to partial counts: one file of n-gram counts per split."""
