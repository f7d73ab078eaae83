"""The `[cluster]` table: in a run file, in a file of its own, on the command line."""

from pathlib import Path

import pytest

from sparseoco.cli.options import cluster_options
from sparseoco.core.errors import InputError
from sparseoco.pipeline.run_file import load_cluster_file, load_run_file
from tests.support.errors import raises_code
from tests.support.texts import RUN_FILE

SLURM = """
kind = "slurm"
workers = 8
threads = 4
memory = "16GB"

[slurm]
walltime = "08:00:00"
queue = "long"

[kubernetes]
image = "registry.example.org/sparseoco:0.1.0"
"""


def write(folder: Path, text: str, name: str = "cluster.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_cluster_file_means_the_same_as_the_table(tmp_path: Path) -> None:
    alone = load_cluster_file(write(tmp_path, SLURM))
    assert (alone.where, alone.workers, alone.slurm and alone.slurm.queue) == ("slurm", 8, "long")
    before = RUN_FILE.partition("[cluster]")[0]
    table = SLURM.replace("[slurm]", "[cluster.slurm]").replace("[kubernetes]", "[cluster.kubernetes]")
    (tmp_path / "runs").mkdir()
    for text in (f'cluster = "../cluster.toml"\n{before}', f"{before}\n[cluster]\n{table}"):
        assert load_run_file(write(tmp_path / "runs", text, "run.toml")).cluster == alone


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, SLURM)
    assert cluster_options(file, {}) == load_cluster_file(file)
    said = cluster_options(file, {"workers": 3})
    assert (said.where, said.workers, said.threads) == ("slurm", 3, 4)
    assert cluster_options(file, {"scheduler": "tcp://127.0.0.1:8786"}).where == "address"
    assert cluster_options(None, {}).where == "local"
    assert cluster_options(None, {"scheduler": "tcp://127.0.0.1:8786"}).where == "address"
    for given in ({"workers": "2"}, {"threads": "2"}, {"memory": "2GB"}):
        with raises_code("invalid-option", *given):
            cluster_options(None, {"scheduler": "tcp://127.0.0.1:8786"} | given)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"slurm"', '"lsf"', "cluster.toml: kind: "),
        ('"slurm"', '"pbs"', 'kind = "pbs" needs a table pbs'),
        ('kind = "slurm"', "", "slurm is used with kind"),
        ('kind = "slurm"', 'scheduler = "tcp://127.0.0.1:8786"', "workers: "),
        ("workers = 8", "", 'kind = "slurm" needs workers'),
        ('memory = "16GB"', "", 'kind = "slurm" needs memory'),
        ('"16GB"', '"much"', "memory: "),
        ('"16GB"', '"16kB"', "512 MiB"),
        ('"16GB"', '"16GB"\nwait = "soon"', "wait: "),
        ('"16GB"', '"16GB"\nscheduler = "tcp://127.0.0.1:8786"', 'scheduler and kind = "address" go together'),
        ('"slurm"', '"address"', 'scheduler and kind = "address" go together'),
        ('"08:00:00"', '"8 hours"', "slurm.walltime: "),
        ('walltime = "08:00:00"', "", "slurm.walltime: "),
        ('queue = "long"', 'partition = "long"', "slurm.partition: "),
        ('queue = "long"', 'queue = "long\\nrm"', "slurm.queue: "),
        ('queue = "long"', "queue = 3", "slurm.queue: "),
        (
            'sparseoco:0.1.0"',
            'sparseoco:0.1.0"\nclaim = "My_Data"',
            "kubernetes.claim: ",
        ),
        ("image =", "picture =", "kubernetes.image: "),
    ],
)
def test_an_invalid_value_is_named_by_its_key(tmp_path: Path, old: str, new: str, named: str) -> None:
    with pytest.raises(InputError) as error:
        load_cluster_file(write(tmp_path, SLURM.replace(old, new, 1)))
    assert named in str(error.value)


@pytest.mark.parametrize("address", ["tcp://me:secret@10.0.0.1:8786", "secret@10.0.0.1:8786"])
def test_a_scheduler_s_address_with_a_password_is_refused_and_not_repeated(tmp_path: Path, address: str) -> None:
    for read in (
        lambda: cluster_options(None, {"scheduler": address}),
        lambda: load_cluster_file(write(tmp_path, f'scheduler = "{address}"')),
    ):
        with pytest.raises(InputError) as error:
            read()
        assert "scheduler: " in str(error.value)
        assert "secret" not in str(error.value)


def test_the_waiting_time_has_units(tmp_path: Path) -> None:
    assert load_cluster_file(write(tmp_path, SLURM.replace("threads = 4", 'wait = "30min"'))).wait == 1800
