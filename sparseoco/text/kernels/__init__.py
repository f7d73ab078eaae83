"""Compiled loops over bytes, identifiers and counts. All release the GIL and are cached on disk."""
