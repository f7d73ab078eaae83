"""Names in lines of text: what would end a line or a column, or change the terminal, is written as in JSON strings."""

import re

# Controls of ASCII and Latin-1, line separators, changes of the direction of text, and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


def printable(text: str) -> str:
    r"""Text on one line of a terminal, for people: control characters are escaped.

    >>> printable("a\tb\n"), printable("\x1b[31m \udcff"), printable("C:\\new")
    ('a\\tb\\n', '\\u001b[31m \\udcff', 'C:\\new')
    """
    return _UNPRINTABLE.sub(_escape, text)


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


def _escape(match: re.Match[str]) -> str:
    return _SHORT.get(match[0], f"\\u{ord(match[0]):04x}")
