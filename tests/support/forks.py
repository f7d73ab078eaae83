"""Commands and functions, each in a fork of a process that has imported what they need: no second of imports for each.

with Forks(folder) as forks:
    end = forks.run(["status", "run"])
"""

import gc
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

MEMORY = 12 << 30  # bytes of addresses: a size that was damaged must not exhaust the machine
SECONDS = 60.0
PACKAGES = ("cli", "pipeline.steps", "pipeline.comparators", "pipeline.nightly", "report", "scoring")
EVERYTHING = (*(f"sparseoco.{name}" for name in PACKAGES), "tests.chaos.readers")


class End(NamedTuple):
    """How a command ended: `code` is negative for a signal; None if it had to be killed.

    `loaded` has the top-level packages that were loaded at its end.
    """

    code: int | None
    out: str
    err: str
    loaded: frozenset[str]


class Forks:
    """A process that runs each command in a fork of itself, in a working folder.

    Parameters
    ----------
    folder : Path
        The working folder of all commands.
    warm : str
        "module:function" to call before the first fork: it loads compiled code, and leaves no thread.
    imports : tuple of str
        Modules that are imported before the first fork.
    env : str
        Further environment variables.
    """

    def __init__(self, folder: Path, warm: str = "", imports: tuple[str, ...] = EVERYTHING, **env: str) -> None:
        self._folder = folder
        self._out, self._err = folder.parent / f"{folder.name}.out", folder.parent / f"{folder.name}.err"
        self._loaded = folder.parent / f"{folder.name}.loaded"
        paths = [str(path) for path in (folder, self._out, self._err, self._loaded)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, *paths, warm, *imports],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def run(self, command: list[str], given: str = "", *, seconds: float = SECONDS, **env: str) -> End:
        """Run a command of sparseoco with this standard input and environment; a name with a colon is a function."""
        (self._folder.parent / f"{self._folder.name}.in").write_text(given)
        self._process.stdin.write(json.dumps([seconds, command, env]).encode() + b"\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        out, err = (path.read_text(errors="replace") for path in (self._out, self._err))
        loaded = self._loaded.read_text().split() if self._loaded.exists() else ()
        self._loaded.unlink(missing_ok=True)
        return End(code, out, err, frozenset(loaded))


def _serve(folder: str, out: str, err: str, loaded: str, warm: str, *imports: str) -> None:
    for module in imports:
        importlib.import_module(module)
    if warm:
        _call(warm)
    gc.freeze()  # as the command does
    for line in sys.stdin:
        seconds, command, env = json.loads(line)
        child = os.fork()
        if not child:
            os.environ.update(env)
            _run(command, Path(folder), Path(out), Path(err), Path(loaded))
        print(json.dumps(_wait(child, seconds)), flush=True)


def _wait(child: int, seconds: float) -> int | None:
    """The exit code of a child; None if it takes too long."""
    handle = os.pidfd_open(child)
    ready, _, _ = select.select([handle], [], [], seconds)
    os.close(handle)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ready else None


def _run(command: list[str], folder: Path, out: Path, err: Path, loaded: Path) -> None:
    """Run a command and end this process."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        given = os.open(folder.parent / f"{folder.name}.in", os.O_RDONLY)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(given, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - of the process
        sys.argv = ["sparseoco", *command]
        from sparseoco.cli import main
        from sparseoco.cli.console import error_exits

        if command and ":" in command[0]:
            with error_exits():
                print(_call(*command))
        else:
            main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        loaded.write_text(" ".join({name.partition(".")[0] for name in sys.modules}))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call(name: str, *arguments: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)(*arguments)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))  # last: the package is the installed one, if there is one
    _serve(*sys.argv[1:])
