"""Workers as jobs of SLURM, while a command runs. Copy this file, change the lines that say "change", then:

    python jobs.py sparseoco run run.toml --cluster address.toml

For PBS write PBSCluster, and "#PBS" for what "#SBATCH" is said of.
"""

import subprocess
import sys

import dask
from dask_jobqueue import SLURMCluster
from distributed import Security

if __name__ == "__main__":
    # A worker that died is restarted within its job, which Dask would end after 15 seconds.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "60s"})
    cluster = SLURMCluster(
        queue="batch",  # change: the partition
        account="nlp",  # change: the account to charge
        walltime="08:00:00",  # of a job; one that ends is replaced
        cores=4,  # of a job: --nthreads of its worker, the number of tasks at a time
        memory="16GB",  # of a job: --memory-limit of its worker
        processes=1,  # one worker a job: its threads share one copy of a shard
        interface="ib0",  # change: the network of this machine and of the nodes
        job_extra_directives=[],  # more #SBATCH lines
        job_script_prologue=["export DASK_CONFIG=/shared/deploy/dask.yaml"],  # change; and module load ..., if needed
        local_directory="/tmp",  # fast local disk of a node, for unpacked shards
        log_directory="logs",
        death_timeout=120,
        security=Security(require_encryption=True),  # the certificates of Dask's configuration
        worker_extra_args=["--no-dashboard", "--dashboard-address", "127.0.0.1:0"],
        scheduler_options={"port": 8786, "dashboard": False, "dashboard_address": "127.0.0.1:0"},
    )
    with cluster, cluster.get_client() as client:
        cluster.adapt(minimum=8, maximum=8)  # change: the number of jobs
        client.wait_for_workers(1)  # however long the queue is
        sys.exit(subprocess.call(sys.argv[1:]))
