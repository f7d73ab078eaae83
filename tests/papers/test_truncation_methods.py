"""The methods of STDA's and SGFT's experiments are run files' tables, are run as a search runs them, and take more."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.papers.truncation import reproduce_stda
from sparseoco.papers.truncation.documents import SOURCES, files_of, make
from sparseoco.papers.truncation.methods import published_protocol
from sparseoco.papers.truncation.published import NOT_PRINTED, SGFT_SHEETS, STDA_SHEETS
from sparseoco.papers.truncation.validation import Trial, cells_of, held_out, learn
from sparseoco.pipeline.steps import search
from tests.papers.small import write_reviews
from tests.support.commands import call

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


def test_methods_are_those_of_the_tables_with_twelve_strengths_three_a_decade() -> None:
    for name, sheets in (("stda", STDA_SHEETS), ("sgft", SGFT_SHEETS)):
        protocol = published_protocol(name)
        wanted = {method for sheet in sheets for method in sheet.methods} | set(NOT_PRINTED if name == "sgft" else ())
        assert set(protocol.methods) == wanted
        for method in protocol.for_classes(2):
            assert (method.search.loss, method.search.folds, method.search.epochs) == ("hinge", 10, 20)
            first = method.strengths[0]
            assert method.strengths == pytest.approx([first * 10 ** (k / 3) for k in range(12)], rel=5e-3)
    (rda,) = (method for method in published_protocol("sgft").for_classes(20) if method.name == "RDA")
    assert rda.search.loss == "multiclass_hinge"


@pytest.mark.parametrize("name", ["STDA p = 1, by feature", "FOBOS"])
def test_a_search_gives_the_errors_and_weights_of_the_cells_that_hold_out_one_fold(
    data: Path, tmp_path: Path, name: str
) -> None:
    """There is no second way of doing things: same rows in the same order, same bits."""
    (source,) = (source for source in SOURCES if source.name == "books")
    documents = make(source, files_of(data, [source]), tmp_path / "stores")
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
    own = documents.rows[trial.rows_of(4)]
    losses, _ = learner.evaluate(own.indptr, own.indices, own.data, documents.labels[trial.rows_of(4)])
    assert [found[4, k]["held_out_loss"] for k in range(12)] == (losses / own.shape[0]).tolist()
    for held, cell in zip(held_out(10), cells_of(trial), strict=True):
        if len(held) == 1:
            part = cell.run()
            for k in range(12):
                row = found[held[0], k]
                assert row["held_out_rows"] == part["rows"][0]
                assert row["held_out_error"] == part["errors"][0][k] / part["rows"][0]
                assert row["nonzeros"] == part["nonzeros"][k]


def test_methods_of_a_file_stand_in_tables_and_figures_without_printed_numbers(data: Path, tmp_path: Path) -> None:
    plain = reproduce_stda(data, tmp_path / "plain", passes=1).parent
    out = tmp_path / "out"
    page = reproduce_stda(data, out, methods=_file(tmp_path, MINE), passes=1).read_text()
    assert "Added: methods that the paper does not have" in page
    assert "Mine, with &lt;b&gt;" in page
    assert "with <b>" not in page
    assert "added here: Mine, with &lt;b&gt;; Elastic FOBOS" in page
    results = pq.read_table(out / "results.parquet").to_pylist()
    added = [row for row in results if row["method"] == "Elastic FOBOS"]
    assert {(row["table"], row["paper_error"], row["error_there"]) for row in added} == {("", None, None)}
    paths = pq.read_table(out / "paths.parquet").to_pylist()
    assert [row["lam"] for row in paths if row["method"] == "Elastic FOBOS"] == [1e-3, 1e-2]
    before = pq.read_table(plain / "results.parquet").to_pylist()
    assert [row for row in results if row in before] == before
    claims = [pq.read_table(folder / "claims.parquet") for folder in (plain, out)]
    assert claims[0] == claims[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "methods: this key is required"),
        ("[methods]", "methods: "),
        ("[search]\nfolds = 3\n" + MINE, "search: there is no such key"),
        ("[methods.RDA.algorithms.rda]\nlam = 1e-3", "methods.RDA: the experiment has a method of that name"),
        ('[methods." ".algorithms.rda]\nlam = 1e-3', "a method needs a name"),
        ("[methods.mine]\nloss = 'hinge'\nalgorithms.rda.lam = 1e-3", "methods.mine.loss: there is no such key"),
        ("[methods.mine.algorithms]", "methods.mine.algorithms: "),
        ("[methods.mine.algorithms.nope]", "methods.mine: .*nope"),
        ("[methods.mine.algorithms.rda]\nlam = -1", "methods.mine: rda: lam=-1.0"),
        ("[methods.mine.algorithms.rda]\nlam = [[1]]", "methods.mine.algorithms.rda.lam"),
        ("[methods.mine.algorithms.rda]\nlam = {low = 1e-3, high = 1}", "rda.lam is a range"),
        ("[methods.mine.algorithms.rda]\nlam = [1e-2, 1e-3]", "methods.mine.algorithms.rda.lam: .*smallest"),
        ("[methods.mine.algorithms.rda]\ngamma = [1, 2]", "methods.mine.algorithms.rda.gamma: λ alone is tuned"),
        ("[methods.mine.algorithms]\nrda.lam = 1\nfobos.lam = 1", "methods.mine.algorithms: a method is one learner"),
        ("[methods.mine.algorithms.caos-erm]", "methods.mine: caos-erm goes through the same rows again"),
        ("[methods.mine]\npenalty = 'group'\nalgorithms.fobos.lam = 1e-3", "methods.mine: penalty='group' needs"),
        ("methods = 3\nmethods = 4", "is not TOML"),
    ],
)
def test_what_cannot_be_a_method_is_told_by_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"mine\.toml.*{message}"):
        published_protocol("stda").adding(_file(tmp_path, text))


def test_the_command_takes_a_file_of_methods(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = _file(tmp_path, "[methods.RDA.algorithms.rda]\nlam = 1e-3")
    for paper, message in (("stda", "methods.RDA: the experiment has"), ("onseg", "onseg have no --methods")):
        command = ("reproduce", paper, "--data", data, "--out", tmp_path / "out", "--methods", taken)
        assert call(monkeypatch, *command) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
