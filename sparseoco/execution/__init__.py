"""Dask: clusters and the task pool.

clusters    `connect` to a cluster: in this process, in worker processes, at an address, in a batch queue (`queues`:
            SLURM and PBS) or on Kubernetes (`kubernetes`); `settings` are those of Dask
pool        submits tasks, waits for them, retries or splits them, and stops them at a deadline
interrupts  signals and worker processes
"""
