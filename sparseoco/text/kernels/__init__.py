"""Compiled loops over bytes, keys and counts. All release the GIL and are cached on disk."""
