"""Numbers, sizes, names and suggestions as people read them."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final

# ----------------------------------------------------------------------------------------------------------------------
# Numbers in text; durations, sizes and counts with units.


_DURATION = re.compile(r"(?:(\d+\.?\d*)\s*h)?\s*(?:(\d+\.?\d*)\s*m(?:in)?)?\s*(?:(\d+\.?\d*)\s*s?)?")
_SIZE = re.compile(r"(\d+\.?\d*|\.\d+)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def number_or_text(text: str) -> int | float | str:
    """A number if the text is one.

    >>> number_or_text("3"), number_or_text("1e-3"), number_or_text("inf."), number_or_text("l1")
    (3, 0.001, 'inf.', 'l1')
    """
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def parse_duration(value: Any) -> Any:
    """Seconds of a text such as 90s, 30min or 1h 30min; any other type unchanged. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    parts = _DURATION.fullmatch(value.strip())
    if parts is None or not any(parts.groups()):
        raise ValueError("write a duration as seconds, or as 90s, 30min, 1h 30min")
    return sum(float(part or 0) * seconds for part, seconds in zip(parts.groups(), (3600, 60, 1), strict=True))


def plural(number: int, noun: str, nouns: str = "") -> str:
    """A count and its noun.

    >>> plural(1, "fold"), plural(10660, "document"), plural(2, "class", "classes")
    ('1 fold', '10,660 documents', '2 classes')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def parse_bytes(value: Any) -> Any:
    """Bytes of a text such as 500MB or 2GiB; any other type unchanged. Raises `ValueError`.

    >>> parse_bytes("500MB"), parse_bytes("1.5 GiB"), parse_bytes("65536")
    (500000000, 1610612736, 65536)
    """
    if not isinstance(value, str):
        return value
    parts = _SIZE.fullmatch(value.strip())
    if parts is None:
        raise ValueError("write a size as bytes, or as 500MB, 2GiB")
    number, prefix, binary = parts.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " "))


# ----------------------------------------------------------------------------------------------------------------------
# Suggestions for names that are not known.


LONGEST: Final = 100  # characters that are compared


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """A question that names the known name closest to this one; empty if none is close.

    >>> did_you_mean("fold", ["folds", "epochs"]), did_you_mean("gamma", ["folds", "epochs"])
    ('did you mean folds?', '')
    """
    close = get_close_matches(str(name)[:LONGEST], known, n=1)
    return f"did you mean {close[0]}?" if close else ""


def not_one_of(name: Any, known: Iterable[str]) -> str:
    """What to choose instead of an unknown name, to end a sentence.

    >>> not_one_of("fold", ["folds", "epochs"]), not_one_of("gamma", ["folds", "epochs"])
    ('did you mean folds? Choose one of folds, epochs', 'choose one of folds, epochs')
    """
    names = list(known)
    question = did_you_mean(name, names)
    return f"{question} Choose one of {', '.join(names)}" if question else f"choose one of {', '.join(names)}"


# ----------------------------------------------------------------------------------------------------------------------
# Names in lines of text: what would end a line or a column, or change the terminal, is written as in JSON strings.


# Controls of ASCII and Latin-1, line separators, changes of the direction of text, and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


def printable(text: str) -> str:
    r"""Text on one line of a terminal, for people: control characters are escaped.

    >>> printable("a\tb\n"), printable("\x1b[31m \udcff"), printable("C:\\new")
    ('a\\tb\\n', '\\u001b[31m \\udcff', 'C:\\new')
    """
    return _UNPRINTABLE.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04x}"), text)


def tsv_field(text: str) -> str:
    r"""Text as a field of tab-separated output: as `printable`, with backslashes doubled, so that it can be read back.

    >>> tsv_field("a\tb"), tsv_field("a\\tb")
    ('a\\tb', 'a\\\\tb')
    """
    return printable(text.replace("\\", "\\\\"))


def tsv_list(names: list[str]) -> str:
    r"""Names as one field, separated by commas; commas in them are escaped.

    >>> tsv_list(["a,b", "c"])
    'a\\u002cb,c'
    """
    return ",".join(tsv_field(name).replace(",", r"\u002c") for name in names)


# ----------------------------------------------------------------------------------------------------------------------
# Numbers and names written for people.


NONE: Final = "–"
PERCENT: Final = "\N{NO-BREAK SPACE}%"
_METRICS: Final = {
    "roc_auc": "ROC AUC",
    "f1": "F1",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "f1_weighted": "weighted F1",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
}
_SUPERSCRIPTS: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def percent(share: float | None) -> str:
    """A share in per cent with about three digits.

    >>> percent(0.21576), percent(0.00123), percent(0.0), percent(None)
    ('21.6\\xa0%', '0.12\\xa0%', '0\\xa0%', '–')
    """
    if share is None:
        return NONE
    if share == 0:
        return f"0{PERCENT}"
    if share < 0.0001:
        return f"< 0.01{PERCENT}"
    return f"{100 * share:.{1 if share >= 0.01 else 2}f}{PERCENT}"


def percent_with_error(share: float | None, error: float | None) -> str:
    """A share and its standard error.

    >>> percent_with_error(0.21576, 0.0034), percent_with_error(0.21576, None)
    ('21.6 ± 0.3\\xa0%', '21.6\\xa0%')
    """
    if share is None or error is None:
        return percent(share)
    digits = 1 if error >= 0.0005 else 2
    return f"{100 * share:.{digits}f} ± {100 * error:.{digits}f}{PERCENT}"


def metric_name(metric: str) -> str:
    """A metric in words.

    >>> metric_name("error"), metric_name("roc_auc"), metric_name("recall_at_precision_90")
    ('error', 'ROC AUC', 'recall at 90\xa0% precision')
    """
    if "_at_" in metric:
        first, _, second, level = metric.split("_")
        return f"{first} at {level}{PERCENT} {second}"
    return _METRICS.get(metric, metric.replace("_", " "))


def capitalised(text: str) -> str:
    """A text with its first letter in upper case.

    >>> capitalised("error"), capitalised("macro F1")
    ('Error', 'Macro F1')
    """
    return text[:1].upper() + text[1:]


def metric_with_error(metric: str, value: float | None, error: float | None) -> str:
    """A metric and its standard error; an error is in per cent.

    >>> metric_with_error("error", 0.21576, 0.0034), metric_with_error("roc_auc", 0.98765, 0.00123)
    ('21.6 ± 0.3\xa0%', '0.9877 ± 0.0012')
    """
    if metric == "error":
        return percent_with_error(value, error)
    if value is None:
        return NONE
    digits = f"{value:.4f}".replace("-", "−")
    return digits if not error else f"{digits} ± {error:.4f}"


def metric_with_interval(metric: str, value: float | None, interval: tuple[float, float] | None) -> str:
    """A metric and the bounds of its confidence interval; an error is in per cent.

    >>> metric_with_interval("error", 0.0554, (0.0349, 0.087)), metric_with_interval("f1", 0.94, None)
    ('5.54% [3.49, 8.70]', '0.9400')
    """
    if value is None or interval is None:
        return metric_with_error(metric, value, None)
    figure, low, high = metric_figures(metric, value, *interval)
    return f"{figure}{'%' if metric == 'error' else ''} [{low}, {high}]"


def metric_figures(metric: str, *values: float) -> list[str]:
    """Values of a metric without a unit; those of an error in per cent.

    >>> metric_figures("error", 0.0349, 0.087), metric_figures("r2", -0.02)
    (['3.49', '8.70'], ['−0.0200'])
    """
    factor, digits = (100, 2) if metric == "error" else (1, 4)
    return [f"{factor * value:.{digits}f}".replace("-", "−") for value in values]


def integer(number: float | None) -> str:
    """A count with separated thousands.

    >>> integer(116178), integer(1234.6), integer(None)
    ('116,178', '1,235', '–')
    """
    return NONE if number is None else f"{round(number):,}"


def amount(value: float | None) -> str:
    """A sum with three figures or so.

    >>> amount(12345.6), amount(12.345), amount(0.012345), amount(-1.5), amount(1.23e9), amount(None)
    ('12,346', '12.3', '0.0123', '−1.50', '1.2 × 10⁹', '–')
    """
    if value is None:
        return NONE
    size = abs(value)
    if size >= 1e7:
        digits, exponent = f"{value:.1e}".split("e")
        text = f"{digits} × 10{exponent.removeprefix('+').lstrip('0').translate(_SUPERSCRIPTS)}"
    else:
        text = f"{value:,.0f}" if size >= 1000 or value == 0 else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")


def plus_minus(value: float | None, error: float | None) -> str:
    """A number and its standard error, both with two decimals.

    >>> plus_minus(0.5031, 0.0123), plus_minus(None, None)
    ('0.50 ± 0.01', '–')
    """
    return NONE if value is None or error is None else f"{value:.2f} ± {error:.2f}".replace("-", "−")


def duration(seconds: float | None) -> str:
    """A time with two figures.

    >>> duration(0.042), duration(8.23), duration(75), duration(7265)
    ('0.04 s', '8.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return NONE
    if seconds < 59.95:
        return f"{seconds:.{2 if seconds < 1 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def signed(weight: float) -> str:
    """A weight with its sign and two figures.

    >>> signed(-1.834), signed(0.5)
    ('−1.8', '+0.50')
    """
    return f"{weight:+#.2g}".replace("-", "−").rstrip(".")


def parameters(values: Mapping[str, Any]) -> str:
    """The parameters of a configuration on one line.

    >>> parameters({"lam": 1e-05, "eta0": 0.5, "by": "feature"})
    'by feature, eta0 0.5, lam 1e-5'
    """
    return ", ".join(f"{name} {_value(value)}" for name, value in sorted(values.items())) or "no parameters"


def _value(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return str(value)
    return (
        f"{value:g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
        if isinstance(value, int | float)
        else json.dumps(value)
    )
