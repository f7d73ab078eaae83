"""Where Dask is, and waiting for what it does; what the tasks are is `sparseoco.cluster`'s.

connect     the one way to a cluster: in this process, in processes of our own, at an address, in queues (SLURM and PBS)
            or on kubernetes; settings are Dask's, interrupts how a stop gets through
waiting     for tasks, while workers are looked after
"""
