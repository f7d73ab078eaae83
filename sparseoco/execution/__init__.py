"""Dask: clusters and the task pool.

options   the `[cluster]` table, and the settings of Dask's processes
clusters  `connect` to a cluster: in this process, in worker processes, or at an address; its workers and their shape;
          `TaskPool` submits tasks, waits for them, retries or splits them, and stops them at a deadline
"""
