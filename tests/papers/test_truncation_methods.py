"""The methods of STDA's and SGFT's experiments: run as a search runs them, with methods added from a file."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.papers.truncation import claims as printed
from sparseoco.papers.truncation.experiment import reproduce_stda
from sparseoco.papers.truncation.trials import Trial, group_cells, held_out_folds, learn, published_protocol
from sparseoco.pipeline.steps import search
from tests.papers.small import load, rows_of, write_reviews
from tests.support.commands import Cli

MINE = """
[methods."Mine, with <b>".algorithms.adagrad]
eta = 0.5
lam = [1e-4, 1e-3, 1e-2]

[methods."Elastic FOBOS"]
penalty = "elastic_net"
[methods."Elastic FOBOS".algorithms.fobos]
l1_ratio = 0.9
lam = [1e-3, 1e-2]
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("data"))


def _file(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_methods_are_those_of_the_tables_with_twelve_lambdas_three_per_decade() -> None:
    for name, tables, unprinted in (
        ("stda", printed.STDA_TABLES, printed.OTHER_GAMMAS),
        ("sgft", printed.SGFT_TABLES, (printed.SGFT_CUMULATIVE, printed.SG_L1_CUMULATIVE)),
    ):
        protocol = published_protocol(name)
        wanted = {method for table in tables for method in table.methods} | set(unprinted)
        assert set(protocol.methods) == wanted
        for method in protocol.for_classes(2):
            assert (method.search.loss, method.search.folds, method.search.epochs) == ("hinge", 10, 20)
            first = method.strengths[0]
            assert method.strengths == pytest.approx([first * 10 ** (k / 3) for k in range(12)], rel=5e-3)
    (rda,) = (method for method in published_protocol("sgft").for_classes(20) if method.name == "RDA")
    assert rda.search.loss == "multiclass_hinge"


@pytest.mark.parametrize("name", [pytest.param("STDA p = 1, by feature", marks=pytest.mark.slow), "FOBOS"])
def test_a_search_gives_the_errors_and_weights_of_the_cells_that_hold_out_one_fold(
    data: Path, tmp_path: Path, name: str
) -> None:
    """The same rows in the same order give the same bits."""
    documents = load(data, "books", tmp_path / "stores")
    protocol = published_protocol("stda")
    protocol = protocol.model_copy(update={"search": protocol.search | {"epochs": 3}})
    (method,) = (method for method in protocol.for_classes(2) if method.name == name)
    (store,) = (tmp_path / "stores").iterdir()
    folder = search(store, tmp_path / "run", method.search, ClusterOptions(threads=1))
    rows = [row for row in pq.read_table(folder / "metrics.parquet").to_pylist() if row["epoch"] == 3]
    found = {(row["fold"], row["configuration"]): row for row in rows}
    assert len(found) == 10 * 12
    trial = Trial("books", documents, method)
    learner = learn(trial, method.configurations, (4,))
    own = documents.rows[trial.fold_rows(4)]
    losses, _ = learner.evaluate(own.indptr, own.indices, own.data, documents.labels[trial.fold_rows(4)])
    assert [found[4, k]["held_out_loss"] for k in range(12)] == (losses / own.shape[0]).tolist()
    for held, cell in zip(held_out_folds(10), group_cells([trial]), strict=True):
        if len(held) == 1:
            part = cell.run()[0]
            for k in range(12):
                row = found[held[0], k]
                assert row["held_out_rows"] == part["rows"][0]
                assert row["held_out_error"] == part["errors"][0][k] / part["rows"][0]
                assert row["nonzeros"] == part["nonzeros"][k]


@pytest.mark.slow
def test_added_methods_are_in_tables_and_figures_without_printed_results(data: Path, tmp_path: Path) -> None:
    plain = reproduce_stda(data, tmp_path / "plain", passes=1).parent
    out = tmp_path / "out"
    page = reproduce_stda(data, out, methods=_file(tmp_path, MINE), passes=1).read_text()
    assert "Added: methods that the paper does not have" in page
    assert "Mine, with &lt;b&gt;" in page
    assert "with <b>" not in page
    assert "added here: Mine, with &lt;b&gt;; Elastic FOBOS" in page
    added = rows_of(out, "results", method="Elastic FOBOS")
    assert {(row["table"], row["paper_error"], row["error_there"]) for row in added} == {("", None, None)}
    assert [row["lam"] for row in rows_of(out, "paths", method="Elastic FOBOS")] == [1e-3, 1e-2] * 10
    before = rows_of(plain, "results")
    assert [row for row in rows_of(out, "results") if row in before] == before
    claims = [pq.read_table(folder / "claims.parquet") for folder in (plain, out)]
    assert claims[0] == claims[1]


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        ("", "missing-option", "methods"),
        ("[methods]", "invalid-option", "methods"),
        ("[search]\nfolds = 3\n" + MINE, "unknown-option", "search"),
        ("[methods.RDA.algorithms.rda]\nlam = 1e-3", "invalid-name", "methods.RDA"),
        ('[methods." ".algorithms.rda]\nlam = 1e-3', "invalid-name", "methods. "),
        ("[methods.mine]\nloss = 'hinge'\nalgorithms.rda.lam = 1e-3", "unknown-option", "methods.mine.loss"),
        ("[methods.mine.algorithms]", "invalid-option", "methods.mine.algorithms"),
        ("[methods.mine.algorithms.nope]", "unknown-algorithm", "methods.mine"),
        ("[methods.mine.algorithms.rda]\nlam = -1", "invalid-parameter", "lam=-1.0"),
        ("[methods.mine.algorithms.rda]\nlam = [[1]]", "invalid-option", "methods.mine.algorithms.rda.lam"),
        ("[methods.mine.algorithms.rda]\nlam = {low = 1e-3, high = 1}", "invalid-option", "rda.lam"),
        ("[methods.mine.algorithms.rda]\nlam = [1e-2, 1e-3]", "invalid-option", "methods.mine.algorithms.rda.lam"),
        (
            "[methods.mine.algorithms.rda]\ngamma = [1, 2]",
            "unsupported-combination",
            "methods.mine.algorithms.rda.gamma",
        ),
        (
            "[methods.mine.algorithms]\nrda.lam = 1\nfobos.lam = 1",
            "unsupported-combination",
            "methods.mine.algorithms",
        ),
        ("[methods.mine.algorithms.caos-erm]", "not-online", "methods.mine: caos-erm"),
        (
            "[methods.mine]\npenalty = 'group'\nalgorithms.fobos.lam = 1e-3",
            "unsupported-combination",
            "penalty='group'",
        ),
        ("methods = 3\nmethods = 4", "invalid-toml", "mine.toml"),
    ],
)
def test_an_invalid_method_is_named_by_its_key(tmp_path: Path, text: str, code: str, key: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        published_protocol("stda").adding(path)
    assert str(path) in str(caught.value)
    assert key in str(caught.value)
    assert caught.value.code == code


def test_the_command_takes_a_file_of_methods(data: Path, tmp_path: Path, cli: Cli) -> None:
    taken = _file(tmp_path, "[methods.RDA.algorithms.rda]\nlam = 1e-3")
    for paper, message in (("stda", "methods.RDA"), ("onseg", "--methods")):
        command = ("reproduce", paper, "--data", data, "--out", tmp_path / "out", "--methods", taken)
        assert message in cli(*command, code=2).err
    assert not (tmp_path / "out").exists()
