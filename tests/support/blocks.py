"""The code blocks of README and the documentation, as a reader uses them.

A block whose first line is a comment with the name of a file, such as ``# reviews.toml``, is saved under this name. In
console blocks lines after ``$`` are commands, and what follows is what they print, ``…`` for what is left out. A
text block after a Python block is what that prints. Python blocks with no command in between are one script. A block
after ``<!-- not run: why -->`` is checked, but not run.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(
    r"^(?:<!-- (?P<unrun>not run: .+) -->\n+)?^(?P<indent> *)```(?P<kind>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_INCLUDED = re.compile(r'^--8<-- "([^"]+)"$', re.MULTILINE)
_NUMBER = re.compile(r"[-−+]?\d[\d,.]*(?:e[-+]?\d+)?")


class Block(NamedTuple):
    """A fenced block of a page."""

    kind: str
    text: str
    runs: bool

    @property
    def file(self) -> str | None:
        """The name that the block is saved under."""
        found = re.match(r"# ([\w-]+\.\w+)\n", self.text)
        return found.group(1) if found else None

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands of a console block, each with the lines that it prints."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif line.strip() not in ("", "…"):
                found[-1][1].append(line)
        return found


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order, with the files that they include."""
    text = _INCLUDED.sub(lambda found: (ROOT / found[1]).read_text().rstrip("\n"), page.read_text())
    return [
        Block(found["kind"], re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE), not found["unrun"])
        for found in _FENCE.finditer(text)
    ]


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line of the shell, without redirections and settings of variables.

    >>> list(simple_commands("A=1 echo 'x y' | sparseoco predict run > out  # lines"))
    [['echo', 'x y'], ['sparseoco', 'predict', 'run']]
    """
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    skip = False
    for token in [*lexer, ";"]:
        if skip:
            skip = False
        elif set(token) <= set("<>"):
            skip = True
        elif set(token) <= set("|&;"):
            if words:
                yield words
            words = []
        elif words or not re.match(r"\w+=", token):
            words.append(token)


class _Step(NamedTuple):
    script: str
    prints: list[str]


def _steps(page: Path) -> Iterator[_Step]:
    """What a reader does, block by block."""
    python: list[Block] = []
    prints: list[str] = []

    def interpreter() -> Iterator[_Step]:
        if python:
            yield _Step(f"python - <<'END_OF_BLOCK'\n{''.join(b.text for b in python)}END_OF_BLOCK", list(prints))
        python.clear()
        prints.clear()

    for block in (block for block in blocks(page) if block.runs):
        if block.kind == "text" and python:
            prints += [line for line in block.text.splitlines() if line.strip() not in ("", "…")]
        elif block.kind == "python" and not block.file:
            python.append(block)
        elif block.file:
            yield from interpreter()
            yield _Step(f"cat > {block.file} <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK", [])
        elif block.kind == "console":
            yield from interpreter()
            yield from (_Step(*command) for command in block.commands)
    yield from interpreter()


def run_page(page: Path, folder: Path, *, skip: tuple[str, ...] = ()) -> int:
    """Run the blocks of a page in a folder, in one shell, and compare what they print; gives the number of steps.

    Numbers may differ. Commands that begin with one of `skip` are left out.
    """
    tools = folder / ".bin"
    tools.mkdir(exist_ok=True)
    for name, arguments in {"sparseoco": "-m sparseoco", "python": "", "dask": "-m dask"}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (tools / name).chmod(0o755)
    steps = [step for step in _steps(page) if not step.script.startswith(skip or "\0")]
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    script = "\n".join(f"echo '\036{number}'\n{step.script}" for number, step in enumerate(steps))
    with (folder / ".printed").open("w") as output:  # not a pipe, which commands in the background would keep open
        shell = subprocess.Popen(
            ["bash", "-e", "-c", script],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=environment, process_group=0,
        )  # fmt: skip
        try:
            shell.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    outputs = re.split(r"\036\d+\n", (folder / ".printed").read_text())[1:]
    assert shell.returncode == 0, f"{page.name}: {steps[len(outputs) - 1].script}\n{outputs[-1]}"
    for step, output in zip(steps, outputs, strict=True):
        actual = iter(_comparable(output.splitlines()))
        for line in _comparable(step.prints):
            pattern = ".*".join(map(re.escape, line.split("…")))
            assert any(re.fullmatch(pattern, other) for other in actual), (
                f"{page.name}: {step.script}\nno longer prints\n{line}\nbut\n{output}"
            )
    return len(steps)


def _comparable(lines: list[str]) -> list[str]:
    return [" ".join(re.sub(r"[━─]+", "─", _NUMBER.sub("#", line)).split()) for line in lines]
