"""Processes for tests: nodes, and Python programs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torc

#: Longest wait for a condition: it finds hangs, not slowness.
PATIENCE_S = 120


def kvd() -> str:
    """The server: $TORC_KVD, or what the workspace beside this package has built."""
    given = os.environ.get("TORC_KVD")
    if given is not None:
        assert Path(given).is_file(), f"TORC_KVD={given} is no file"
        return given
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target"))
    for profile in ("debug", "release"):
        if (target / profile / "kvd").is_file():
            return str(target / profile / "kvd")
    pytest.skip("no kvd: build it with `cargo build -p torc-server --bin kvd`, or name one by TORC_KVD")


def beside_kvd(program: str) -> str:
    path = Path(kvd()).with_name(program)
    if not path.is_file():
        pytest.skip(f"no {program} beside {kvd()}")
    return str(path)


def free_run(count: int) -> int:
    """The first of so many ports in a row that nobody uses."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        # Ports from which connections are made could be taken meanwhile.
        first = 10_000 + first % 20_000
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


class Node:
    """A `kvd` process."""

    def __init__(self, directory: Path, arguments: list[str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "log.txt"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [kvd(), *arguments, "--data-dir", str(directory / "data")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def connected(endpoints: list[str], nodes: list[Node]) -> torc.Client:
    """A client, once the cluster serves."""
    until = time.monotonic() + PATIENCE_S
    while True:
        for node in nodes:
            assert node.process.poll() is None, node.log.read_text()
        try:
            client = torc.connect(endpoints, timeout=PATIENCE_S)
            client.with_timeout(10).put(b"ready", b"")
        except torc.TorcError as error:
            logs = "\n".join(node.log.read_text() for node in nodes)
            assert time.monotonic() < until, f"{error}\n{logs}"
            continue
        return client


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
