"""Dask: connect, lay shards out for a worker, run blocks of columns over them."""
