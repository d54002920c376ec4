"""A network for processes: one namespace each, on one bridge, with links that can be cut in one direction.

Namespaces need root. Without it, `Loopback` is used, where no link can be cut.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from felice.env.ports import free_ports

BRIDGE = "felice-chaos"
SUBNET = "10.77.0"
HOST_ADDRESS = f"{SUBNET}.1"
_NOBODY = "02:00:00:00:00:01"


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Loopback:
    """Every node at 127.0.0.1, with ports of its own."""

    can_cut = False

    def add(self, name: str) -> str:
        return "127.0.0.1"

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        return list(command)

    def ports(self, count: int) -> list[int]:
        """Free ports, because all processes share one address."""
        return free_ports(count)

    def close(self) -> None:
        pass


class Namespaces:
    """A namespace and an address for each node; the host can reach all of them."""

    can_cut = True

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._clean()
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{HOST_ADDRESS}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")

    @staticmethod
    def is_possible() -> bool:
        """Whether this process may create namespaces."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            return False
        probe = "felice-chaos-probe"
        made = subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode == 0
        if made:
            _ip("netns", "del", probe)
        return made

    def add(self, name: str) -> str:
        """Create the node's namespace; returns its address."""
        number = len(self.addresses) + 11
        address = f"{SUBNET}.{number}"
        outside, space = f"fc{number}", _space(name)
        _ip("netns", "add", space)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outside, "master", BRIDGE, "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        self.addresses[name] = address
        return address

    def ports(self, count: int) -> list[int]:
        return list(range(9092, 9092 + count))

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", _space(name), *command]

    def cut(self, source: str, target: str) -> None:
        """Drop what `source` sends to `target` from now on; the other direction works."""
        if (source, target) not in self._cuts:
            self._cuts.add((source, target))
            _neighbour(source, "replace", self.addresses[target], "lladdr", _NOBODY, "nud", "permanent")

    def heal(self, source: str, target: str) -> None:
        if (source, target) in self._cuts:
            self._cuts.remove((source, target))
            _neighbour(source, "del", self.addresses[target])

    def close(self) -> None:
        for name in self.addresses:
            _ip("netns", "del", _space(name), check=False)
        self._clean()

    def _clean(self) -> None:
        """Remove all namespaces, also those that a killed run left behind."""
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        for line in listed.splitlines():
            if line.startswith(f"{BRIDGE}-"):
                _ip("netns", "del", line.split()[0], check=False)
        _ip("link", "del", BRIDGE, check=False)


def _neighbour(name: str, act: str, address: str, *words: str) -> None:
    """Set where packets for an address go; to nowhere, they are dropped silently, as in a network that is cut."""
    _ip("-n", _space(name), "neigh", act, address, "dev", "eth0", *words)


def _space(name: str) -> str:
    return f"{BRIDGE}-{name}"
