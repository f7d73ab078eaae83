"""Offline methods on a Dask cluster.

`passes` is the full-gradient pass and `optimum` the offline optimum built on it; `epochs` runs blocks of epoch methods,
`caos_erm` and `cao_rcd` are those methods. Each gives the bits of its in-process counterpart in `sparseoco.offline`.
"""
