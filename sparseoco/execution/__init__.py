"""Dask: clusters and the task pool.

clusters    the one way to a cluster (`connect`): in this process, in worker processes, at an address, in a batch queue
            (`queues`: SLURM and PBS) or on Kubernetes (`kubernetes`); `settings` are Dask's
pool        tasks: submitted, waited for, retried, split where they fail, stopped at a deadline
interrupts  what a signal does to worker processes
"""
