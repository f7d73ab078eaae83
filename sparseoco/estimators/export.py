"""A saved model in files that predict without this package: a fitted scikit-learn pipeline, ONNX, SQL, or JSON.

The pipeline has

counts    CountVectorizer: the tokenizer and the vocabulary of the model
values    TfidfTransformer: its tf, idf and norm; absent where values are counts
model     its weights, in the linear model of scikit-learn with the same decisions and probabilities

scikit-learn's linear models have one function for decisions and probabilities, the calibrated margin: slopes and
offsets of a calibration are part of `coef_` and `intercept_`. `FixedThresholdClassifier` has the threshold.
"""

import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from sparseoco import __version__
from sparseoco.core.errors import InputError, unsupported
from sparseoco.storage.commit import as_local_file, check_file, commit_bytes, committed
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import read_parquet_file
from sparseoco.text.options import TokenizerOptions
from sparseoco.training.models import VOCABULARY, Model

NODE_BYTES = 1600
"""What skops takes of memory for each item of a list."""


def export_sklearn(model: Model, path: Location) -> Pipeline:
    """Write the `sklearn_pipeline` of a model to a file that ``skops.io.load`` reads.

    A file of another pipeline is replaced atomically.

    Raises
    ------
    InputError
        If skops is not installed, for a file that has something else, or as `sklearn_pipeline`.
    StorageError
        If the file cannot be written.
    """
    if find_spec("skops") is None:
        raise InputError(
            "Export to scikit-learn requires another package: pip install 'sparseoco[sklearn]'.", code="missing-package"
        )
    import skops.io

    check_file(path, "a pipeline of scikit-learn", _is_pipeline)
    pipeline = sklearn_pipeline(model)
    with committed(path) as temporary:
        skops.io.dump(pipeline, temporary, compression=zipfile.ZIP_DEFLATED)
    return pipeline


def export_sql(model: Model, path: Location) -> int:
    """Write a model as statements for DuckDB, with its tables and views; returns the number of terms.

    They are named after the file: `NAME_margins` has the margin of every document and class, `NAME_predictions` what is
    predicted, of the table `documents` with the columns `id` and `text`. A file of such statements is replaced
    atomically.

    Raises
    ------
    InputError
        For a file that has something else, a name that is none in SQL, and a model that SQL cannot express.
    StorageError
        If the file cannot be written.
    """
    name = path.stem
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise InputError(f"{name!r} is not a name of tables: use letters, digits and _.", code="invalid-option")
    _check_words(model, "SQL")
    check_file(path, "the SQL of a model", lambda path: path.read_bytes().startswith(_FIRST_LINE.encode()))
    terms, idf, columns = _features(model)
    idf = idf if model.weighting.idf else np.ones(len(terms))
    commit_bytes(path, "".join(_statements(model, name, terms, idf, columns)).encode())
    return len(terms)


_FIRST_LINE = "-- A model of sparseoco"
_ROWS = 1000
"""Of a table in one statement."""


def _statements(
    model: Model, name: str, terms: list[str], idf: NDArray[np.float64], columns: NDArray[np.int64]
) -> Iterator[str]:
    yield f"{_FIRST_LINE} for DuckDB: tables of {name}, and views of the table documents(id, text).\n"
    words = [_quoted(term) for term in terms]
    yield from _table(f"{name}_terms", "term VARCHAR, idf DOUBLE", zip(words, map(_double, idf), strict=True))
    features, outputs = np.nonzero(model.weights)
    entries = zip(columns[features].tolist(), outputs.tolist(), model.weights[features, outputs], strict=True)
    weights = ((words[term], str(output), _double(weight)) for term, output, weight in entries)
    yield from _table(f"{name}_weights", "term VARCHAR, output INTEGER, weight DOUBLE", weights)
    classes = [_quoted(label) for label in (model.classes[1:] if model.outputs == 1 else model.classes)] or ["NULL"]
    numbers = map(str, range(model.outputs)), classes, map(_double, model.intercepts), map(_double, _cuts(model))
    described = "output INTEGER, class VARCHAR, intercept DOUBLE, cut DOUBLE"
    yield from _table(f"{name}_outputs", described, zip(*numbers, strict=True))
    yield _margins_view(model, name)
    if not model.classes:
        chosen = "any_value(margin)"
    elif model.is_multilabel:
        chosen = "coalesce(list(class ORDER BY output) FILTER (margin > cut), [])"
    elif model.outputs == 1:
        chosen = f"any_value(CASE WHEN margin > cut THEN class ELSE {_quoted(model.classes[0])} END)"
    else:
        chosen = "arg_max(class, margin)"
    yield f"CREATE OR REPLACE VIEW {name}_predictions AS\n"
    yield f"SELECT id, {chosen} AS prediction FROM {name}_margins GROUP BY id;\n"


def _margins_view(model: Model, name: str) -> str:
    """Tokens, n-grams, their weighted counts, and the sums of their weights."""
    text, weighting = model.text, model.weighting
    source = "lower(text)" if text.lowercase else "text"
    kept = [] if text.max_token_length is None else [f"length(word) <= {text.max_token_length}"]
    kept += [f"word NOT IN ({', '.join(map(_quoted, text.stop_list))})"] if text.stop_list else []
    low, high = text.ngram_range
    following = ", ".join(f"lead(word, {n}) OVER later AS word_{n}" for n in range(high))
    joined = [" || ' ' || ".join(f"word_{k}" for k in range(n)) for n in range(low, high + 1)]
    grams = " UNION ALL ".join(f"SELECT id, {term} AS term FROM followed" for term in joined)
    tf = {"count": "count(*)", "binary": "1", "log": "1 + ln(count(*))"}[weighting.tf]
    norm = {"none": "1", "l2": "sqrt(sum(value * value))"}[weighting.norm]
    return f"""CREATE OR REPLACE VIEW {name}_margins AS
WITH found AS (
    SELECT id, regexp_extract_all({source}, '{_word_pattern(text)}') AS words FROM documents
),
places AS (SELECT id, unnest(words) AS word, generate_subscripts(words, 1) AS place FROM found),
tokens AS (SELECT * FROM places WHERE {" AND ".join(kept) or "true"}),
followed AS (SELECT id, {following} FROM tokens WINDOW later AS (PARTITION BY id ORDER BY place)),
grams AS ({grams}),
weighted AS (
    SELECT id, term, ({tf}) * any_value(idf) AS value FROM grams JOIN {name}_terms USING (term) GROUP BY id, term
),
norms AS (SELECT id, {norm} AS norm FROM weighted GROUP BY id),
sums AS (
    SELECT id, output, sum(value / norm * weight) AS total
    FROM weighted JOIN norms USING (id) JOIN {name}_weights USING (term) GROUP BY id, output
)
SELECT documents.id, class, outputs.output, cut, intercept + coalesce(total, 0) AS margin
FROM documents CROSS JOIN {name}_outputs AS outputs
LEFT JOIN sums ON sums.id = documents.id AND sums.output = outputs.output;
"""


def _table(name: str, columns: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"CREATE OR REPLACE TABLE {name} ({columns});\n"
    values = (f"({', '.join(row)})" for row in rows)
    while part := list(islice(values, _ROWS)):
        listed = ",\n".join(part)
        yield f"INSERT INTO {name} VALUES\n{listed};\n"


def _cuts(model: Model) -> NDArray[np.float64]:
    """Of each output, the margin above which its class is predicted."""
    return np.zeros(model.outputs) if model.thresholds is None else model.thresholds.margins


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _double(value: float) -> str:
    """A number that is not read as a decimal one."""
    return f"{value:.17e}"


def _check_words(model: Model, target: str) -> None:
    """Raises `InputError` for tokens that RE2, the regular expressions of both, does not find, and as others."""
    text = model.text
    if text.counts_characters or text.pattern.joiners or text.strip_accents is not None:
        raise unsupported(
            f"{model.folder} cannot be exported to {target}, where tokens are words or short_words, with their accents."
        )
    _check_expressible(model, target)


def _word_pattern(text: TokenizerOptions) -> str:
    """Words as RE2 finds them."""
    return rf"[\p{{L}}\p{{N}}_]{{{text.pattern.shortest},}}"


def export_onnx(model: Model, path: Location) -> int:
    """Write a model as an ONNX graph for onnxruntime; returns the number of terms.

    Its input `text` is an array of strings. Its outputs are `margins`, float64 (texts, outputs); `prediction`, the
    class or number of each text, or for label sets booleans (texts, classes); and `probabilities`, float64 (texts,
    classes), if the model has some. The names of the classes are in the metadata, as JSON. Tokens are found by an
    operator that only onnxruntime has. A file of such a graph is replaced atomically.

    Raises
    ------
    InputError
        If onnx is not installed, for a file that has something else, and a model that the operators cannot express.
    StorageError
        If the file cannot be written.
    """
    if find_spec("onnx") is None:
        raise InputError(
            "Export to ONNX requires another package: pip install 'sparseoco[onnx]'.", code="missing-package"
        )
    from onnx import TensorProto, helper

    text = model.text
    _check_words(model, "ONNX")
    if text.ngram_range[1] > 1 and (text.stop_list or text.max_token_length is not None):
        raise unsupported(
            f"{model.folder} cannot be exported to ONNX, which has no operator that removes words between those of "
            "n-grams: train without stop_words and max_token_length, or on single words."
        )
    check_file(path, "an ONNX graph of this program", lambda path: b"sparseoco" in path.read_bytes()[:32])
    terms, idf, columns = _features(model)
    graph = _Graph()
    margins, outputs = _onnx_margins(graph, model, terms, idf, columns), {"margins": (TensorProto.DOUBLE, 2)}
    prediction = _onnx_prediction(graph, model, margins)
    one = TensorProto.STRING if model.classes else TensorProto.DOUBLE
    outputs[prediction] = (TensorProto.BOOL, 2) if model.is_multilabel else (one, 1)
    if model.has_probabilities:
        outputs[_onnx_probabilities(graph, model, margins)] = (TensorProto.DOUBLE, 2)
    kinds = [helper.make_tensor_value_info(name, kind, [None] * axes) for name, (kind, axes) in outputs.items()]
    given = helper.make_tensor_value_info("text", TensorProto.STRING, [None])
    content = helper.make_model(
        helper.make_graph(graph.nodes, "sparseoco", [given], kinds, graph.constants),
        producer_name="sparseoco",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    )
    helper.set_model_props(content, {"labels": model.label_kind, "classes": json.dumps(model.classes)})
    commit_bytes(path, content.SerializeToString())
    return len(terms)


class _Graph:
    """The nodes of an ONNX graph and their constants; each node has one output."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: Any, out: str = "", **attributes: Any) -> str:
        """The output of a node; inputs are names of outputs, or constants."""
        from onnx import helper, numpy_helper

        names = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants.append(numpy_helper.from_array(np.asarray(value), f"constant_{len(self.constants)}"))
                value = self.constants[-1].name
            names.append(value)
        out = out or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [out], **attributes))
        return out


def _onnx_margins(
    graph: _Graph, model: Model, terms: list[str], idf: NDArray[np.float64], columns: NDArray[np.int64]
) -> str:
    from onnx import TensorProto

    text, weighting, (low, high) = model.text, model.weighting, model.text.ngram_range
    lower = "text"
    if text.lowercase:  # the locale of every Linux system; by default onnxruntime asks for one that servers lack
        lower = graph.add("StringNormalizer", "text", case_change_action="LOWER", locale="C.UTF-8")
    tokens = graph.add(
        "Tokenizer",
        lower,
        domain="com.microsoft",
        tokenexp=_word_pattern(text),
        pad_value="",
        mark=0,
        mincharnum=1,
    )
    words = [term.split(" ") for term in terms]
    order = sorted(range(len(terms)), key=lambda k: len(words[k]))
    lengths = np.array([len(words[k]) for k in order])
    counts = graph.add(
        "TfIdfVectorizer",
        tokens,
        mode="TF",
        min_gram_length=low,
        max_gram_length=high,
        max_skip_count=0,
        ngram_counts=np.cumsum([0, *(n * int((lengths == n).sum()) for n in range(1, high))]).tolist(),
        ngram_indexes=order,
        pool_strings=[word for k in order for word in words[k]],
    )
    values = graph.add("Cast", counts, to=TensorProto.DOUBLE)
    if weighting.tf != "count":
        present = graph.add("Min", values, 1.0)
        logarithms = graph.add("Add", graph.add("Log", graph.add("Max", values, 1.0)), 1.0)
        values = present if weighting.tf == "binary" else graph.add("Mul", logarithms, present)
    if weighting.idf:
        values = graph.add("Mul", values, idf)
    if weighting.norm == "l2":
        norm = graph.add("Sqrt", graph.add("ReduceSum", graph.add("Mul", values, values), np.array([1])))
        values = graph.add("Div", values, graph.add("Max", norm, np.finfo(np.float64).tiny))
    products = graph.add("MatMul", graph.add("Gather", values, columns, axis=1), model.weights)
    return graph.add("Add", products, np.asarray(model.intercepts, np.float64), out="margins")


def _onnx_prediction(graph: _Graph, model: Model, margins: str) -> str:
    if not model.classes:
        return graph.add("Squeeze", margins, np.array([1]), out="prediction")
    if model.outputs > 1 and not model.is_multilabel:
        best = graph.add("ArgMax", margins, axis=1, keepdims=0)
        return graph.add("Gather", np.array(model.classes, dtype=object), best, out="prediction")
    if model.is_multilabel:
        return graph.add("Greater", margins, _cuts(model), out="prediction")
    above = graph.add("Squeeze", graph.add("Greater", margins, _cuts(model)), np.array([1]))
    first, second = (np.array([name], dtype=object) for name in model.classes)
    return graph.add("Where", above, second, first, out="prediction")


def _onnx_probabilities(graph: _Graph, model: Model, margins: str) -> str:
    calibration, several = model.calibration, model.outputs > 1 and not model.is_multilabel
    if calibration is not None:
        margins = graph.add("Mul", margins, np.array(calibration.slopes))
    if calibration is not None and calibration.offsets:
        margins = graph.add("Add", margins, np.array(calibration.offsets))
    if several and (calibration is not None or model.description.get("loss") == "softmax"):
        return graph.add("Softmax", margins, axis=1, out="probabilities")
    if model.is_multilabel:
        return graph.add("Sigmoid", margins, out="probabilities")
    each = graph.add("Sigmoid", margins)
    if several:
        total = graph.add("ReduceSum", each, np.array([1]))
        return graph.add("Div", each, total, out="probabilities")
    return graph.add("Concat", graph.add("Sub", 1.0, each), each, axis=1, out="probabilities")


def export_json(model: Model, path: Location) -> int:
    """Write a model as one JSON file; returns the number of terms.

    ``terms`` are what is counted, with their ``idf``; of each output there are its class, intercept, threshold and
    weights by term. A file of such a model is replaced atomically.

    Raises
    ------
    InputError
        For a file that has something else, and for a model of hashed features or several fields.
    StorageError
        If the file cannot be written.
    """
    _check_expressible(model, "JSON")
    check_file(path, "a model in JSON", lambda path: path.read_bytes().startswith(b'{"sparseoco": '))
    terms, idf, columns = _features(model)
    cuts, classes = _cuts(model), model.classes[1:] if model.outputs == 1 else model.classes
    outputs = []
    for output in range(model.outputs):
        own = model.weights[:, output]
        used = np.flatnonzero(own)
        weights = {terms[column]: weight for column, weight in zip(columns[used], own[used].tolist(), strict=True)}
        described = {"intercept": float(model.intercepts[output]), "threshold": float(cuts[output]), "weights": weights}
        outputs.append({"class": classes[output] if classes else None} | described)
    text = {name: getattr(model.text, name) for name in ("analyzer", "ngram_range", "lowercase", "strip_accents")}
    text |= {"token_pattern": token_pattern(model.text), "stop_words": list(model.text.stop_list)}
    calibration = None if model.calibration is None else model.calibration.model_dump(exclude={"rows"})
    content = {
        "sparseoco": __version__,
        "labels": model.label_kind,
        "classes": model.classes,
        "text": text,
        "weighting": model.weighting.model_dump(),
        "terms": terms,
        "idf": idf.tolist() if model.weighting.idf else None,
        "outputs": outputs,
        "calibration": calibration,
    }
    commit_bytes(path, json.dumps(content, ensure_ascii=False).encode())
    return len(terms)


def _is_pipeline(path: Location) -> bool:
    damage = suppress(OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile)
    with damage, as_local_file(path) as local, zipfile.ZipFile(local) as archive:
        return bool(json.loads(archive.read("schema.json"))["__class__"] == "Pipeline")
    return False


def sklearn_pipeline(model: Model) -> Pipeline:
    """The fitted scikit-learn pipeline with the predictions of a model.

    Its input are texts. `predict` gives classes, numbers, or for label sets an indicator matrix with a column for each
    of ``pipeline[-1].target_names_``. `decision_function` gives margins; with a calibration the log odds that it makes
    of them, or the margins divided by its temperature. `predict_proba` gives the model's probabilities, for label sets
    as a list of (texts, 2) arrays; there is none if a calibration gives all texts the same probability of a class.

    Raises
    ------
    InputError
        If scikit-learn cannot express the model; the code says why.
    """
    _check_expressible(model)
    terms, idf, columns = _features(model)
    steps = [("counts", _vectorizer(model.text, terms, binary=model.weighting.tf == "binary"))]
    if model.weighting.tf == "log" or model.weighting.idf or model.weighting.norm != "none":
        norm = None if model.weighting.norm == "none" else model.weighting.norm
        logarithms = model.weighting.tf == "log"
        transformer = TfidfTransformer(norm=norm, use_idf=model.weighting.idf, sublinear_tf=logarithms)
        transformer.n_features_in_ = idf.size
        if model.weighting.idf:
            transformer.idf_ = idf
        steps.append(("values", transformer))
    steps.append(("model", _linear_model(model, columns, len(terms))))
    return Pipeline(steps)


def _check_expressible(model: Model, target: str = "scikit-learn") -> None:
    kind, text = model.description["features"]["kind"], model.text
    refusals = {
        "hashed-features": (kind == "hashed", "its features are hashed, by a function that only this package has"),
        "several-fields": (text.fields, "its features are of several fields, and what is exported has one text"),
        "counted-documents": (text.format in ("svmlight", "processed"), "it was trained on counts, not on texts"),
        "folded-numbers": (text.pattern.folds_numbers, "a regular expression cannot replace numbers by #"),
        "no-weights": (not len(model.table), "it has no nonzero weight"),
    }
    for code, (is_refused, reason) in refusals.items():
        if is_refused:
            raise InputError(f"{model.folder} cannot be exported to {target}: {reason}.", code=code)


def _features(model: Model) -> tuple[list[str], NDArray[np.float64], NDArray[np.int64]]:
    """The terms that are counted, their idf, and the position of each row of the model's weights among them."""
    ids = model.feature_ids
    if model.weighting.norm == "none":
        _, first = np.unique(model.table["feature_id"].to_numpy(), return_index=True)
        return model.feature_names, model.table["idf"].to_numpy()[first], np.arange(ids.size)
    table = read_parquet_file(model.folder / VOCABULARY)
    return table["feature"].to_pylist(), table["idf"].to_numpy(), np.searchsorted(table["feature_id"].to_numpy(), ids)


def _vectorizer(options: TokenizerOptions, terms: list[str], *, binary: bool) -> CountVectorizer:
    # skops reads and writes an array ten times as fast as a list. Arrays have one width, that of the longest term, so
    # that they may take more memory, and drop NUL characters at the end.
    as_array = 4 * max(map(len, terms)) <= NODE_BYTES and not any(term.endswith("\0") for term in terms)
    vectorizer = CountVectorizer(
        analyzer=options.analyzer,
        ngram_range=options.ngram_range,
        lowercase=options.lowercase,
        strip_accents=options.strip_accents,
        token_pattern=token_pattern(options),
        vocabulary=np.array(terms) if as_array else terms,
        binary=binary,
    )
    tokens = vectorizer.build_tokenizer()
    # A stop word that is no token removes nothing, and scikit-learn warns of it.
    vectorizer.stop_words = [word for word in options.stop_list if tokens(word) == [word]] or None
    return vectorizer


def token_pattern(options: TokenizerOptions) -> str:
    """The regular expression of the tokens that are not too long: nothing of a longer one may match either."""
    longest, pattern = options.max_token_length, options.pattern
    if longest is None:
        return pattern.regex
    if not pattern.joiners:
        return rf"(?u)\b\w{{{pattern.shortest},{longest}}}\b"
    joiner = f"[{pattern.joiners}]"
    return rf"(?u)(?<!\w{joiner})\b\w(?:\w|{joiner}(?=\w)){{1,{longest - 1}}}(?!\w|{joiner}\w)"


class _Decisions(NamedTuple):
    """Margins, calibrated where that keeps their order, and what is predicted from them.

    A calibration of slope 0, which gives all texts the same probability, would lose the margin that decides.

    Parameters
    ----------
    probable : (outputs,) bool
        Whether they are log odds or, of a softmax, logits.
    coef : (outputs, features) sparse float64.
    intercepts : (outputs,) float64.
    cuts : (outputs,) float64
        A class is predicted if its margin is greater.
    """

    probable: NDArray[np.bool_]
    coef: csr_matrix
    intercepts: NDArray[np.float64]
    cuts: NDArray[np.float64]

    @classmethod
    def of(cls, model: Model, columns: NDArray[np.int64], n_features: int) -> "_Decisions":
        """The decisions of a model whose weights are those of `columns`, of so many."""
        slopes, offsets = np.ones(model.outputs), np.zeros(model.outputs)
        if model.calibration is not None:
            slopes *= model.calibration.slopes
            offsets += model.calibration.offsets or 0.0
        probable = (slopes > 0) & model.has_probabilities
        slopes, offsets = np.where(probable, slopes, 1.0), np.where(probable, offsets, 0.0)
        cuts = _cuts(model)
        features, outputs = np.nonzero(model.weights)
        values = model.weights[features, outputs] * slopes[outputs]
        coef = csr_matrix((values, (outputs, columns[features])), shape=(model.outputs, n_features))
        return cls(probable, coef, slopes * model.intercepts + offsets, slopes * cuts + offsets)


def _linear_model(model: Model, columns: NDArray[np.int64], n_features: int) -> BaseEstimator:
    decisions = _Decisions.of(model, columns, n_features)
    if not model.classes:
        return _fitted(LinearRegression(), decisions.coef.toarray()[0], decisions.intercepts[0])
    if model.is_multilabel:
        several = MultiOutputClassifier(LogisticRegression() if decisions.probable.all() else LinearSVC())
        several.estimators_ = [_two_classes(decisions, k, np.array([0, 1])) for k in range(model.outputs)]
        several.classes_ = [estimator.classes_ for estimator in several.estimators_]
        several.target_names_ = model.classes
        return several
    classes = np.array(model.classes, dtype=object)
    if model.outputs == 1:
        return _two_classes(decisions, 0, classes)
    if not decisions.probable.all():
        estimator = LinearSVC()
    elif model.calibration is not None or model.description.get("loss") == "softmax":
        estimator = LogisticRegression()
    else:
        estimator = SGDClassifier(loss="log_loss")  # its probabilities are those of each class against the rest
    return _fitted(estimator, decisions.coef, decisions.intercepts, classes)


def _two_classes(decisions: _Decisions, output: int, classes: NDArray[Any]) -> BaseEstimator:
    """A classifier by one margin; its weights are dense, unless there are those of other margins."""
    kind = LogisticRegression if decisions.probable[output] else LinearSVC
    coef = decisions.coef[[output]] if len(decisions.cuts) > 1 else decisions.coef.toarray()
    estimator = _fitted(kind(), coef, decisions.intercepts[[output]], classes)
    cut = decisions.cuts[output]
    if cut == 0:
        return estimator
    threshold = float(np.nextafter(cut, np.inf))  # scikit-learn's is the smallest score of the class
    with_threshold = FixedThresholdClassifier(kind(), threshold=threshold, response_method="decision_function")
    with_threshold.estimator_ = estimator
    return with_threshold


def _fitted(estimator: BaseEstimator, coef: Any, intercept: Any, classes: NDArray[Any] | None = None) -> BaseEstimator:
    estimator.coef_, estimator.intercept_ = coef, intercept
    estimator.n_features_in_ = coef.shape[-1]
    if classes is not None:
        estimator.classes_ = classes
    return estimator
