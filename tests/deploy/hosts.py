"""Two hosts on one machine: network namespaces with addresses of their own, and a switch between them."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

ADDRESSES = ("10.77.0.1", "10.77.0.2")


class Hosts(NamedTuple):
    """Two hosts, 0 and 1, that reach each other through a switch and nothing else; both have this machine's disk."""

    names: tuple[str, str]
    switch: str

    def on(self, host: int, *command: str) -> list[str]:
        """The command as it is started on a host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def cut(self) -> None:
        """The switch forwards nothing from now on, and neither host is notified."""
        _ip("-n", self.switch, "link", "set", "port1", "nomaster")

    def mend(self) -> None:
        """The switch forwards again."""
        _ip("-n", self.switch, "link", "set", "port1", "master", "bridge0")


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Hosts of `ADDRESSES`. Raises `OSError` or `CalledProcessError` where this machine does not let us make them."""
    names = [f"sparseoco-{os.getpid()}-{role}" for role in ("a", "b", "switch")]
    made = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        *hosts, switch = names
        _ip("-n", switch, "link", "add", "name", "bridge0", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge0", "up")
        for i, (host, address) in enumerate(zip(hosts, ADDRESSES, strict=True)):
            port = f"port{i}"
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", switch, "link", "set", port, "master", "bridge0", "up")
            _ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", host, "link", "set", device, "up")
        yield Hosts((hosts[0], hosts[1]), switch)
    finally:
        for name in made:
            _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
