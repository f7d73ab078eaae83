"""Offline methods on a Dask cluster.

`passes` is the full-gradient pass and `optimum` the offline optimum built on it; `epochs` runs blocks of the epoch
methods `caos_erm`, `optimistic_averaging` and `cao_rcd`. Each gives the bits of its in-process counterpart in
`sparseoco.offline`.
"""
