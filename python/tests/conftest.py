"""Real nodes for tests: a playground for most of them, single processes where one is killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import torc
from nodes import PATIENCE_S, Node, connected, free_run
from stores import S3


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    store = S3()
    yield store
    store.server.stop()


@pytest.fixture(scope="session")
def three_in_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], Node]]:
    """Three nodes in one process."""
    directory = tmp_path_factory.mktemp("playground")
    first = free_run(12)
    arguments = ["playground", "--first-grpc-port", str(first)]
    arguments += ["--first-http-port", str(first + 3), "--first-resp-port", str(first + 6)]
    arguments += ["--first-peer-port", str(first + 9)]
    node = Node(directory, arguments)
    endpoints = [f"127.0.0.1:{first + number}" for number in range(3)]
    try:
        connected(endpoints, [node]).close()
        yield endpoints, node
    finally:
        node.kill()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def playground(three_in_one: tuple[list[str], Node]) -> Iterator[list[str]]:
    """The endpoints of three nodes."""
    endpoints, node = three_in_one
    assert node.process.poll() is None, node.log.read_text()
    yield endpoints
    assert node.process.poll() is None, node.log.read_text()


@pytest.fixture
def client(playground: list[str]) -> Iterator[torc.Client]:
    with torc.connect(playground, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def key(request: pytest.FixtureRequest) -> bytes:
    """One that no other test uses."""
    name: str = request.node.nodeid
    return name.encode()[-200:]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[list[str], list[Node]]]:
    """Three processes with a replica of every key each; the first one of them founded the cluster."""
    first = free_run(9)
    endpoints = [f"127.0.0.1:{first + number}" for number in range(3)]
    nodes: list[Node] = []
    try:
        for number, endpoint in enumerate(endpoints):
            arguments = ["serve", "--grpc-addr", endpoint, "--http-addr", f"127.0.0.1:{first + 3 + number}"]
            arguments += ["--peer-addr", f"127.0.0.1:{first + 6 + number}"]
            if number == 0:
                arguments += ["--bootstrap", f"--found-with={','.join(endpoints[1:])}"]
            nodes.append(Node(tmp_path / f"node-{number}", arguments))
        connected(endpoints, nodes).close()
        yield endpoints, nodes
    finally:
        for node in nodes:
            node.kill()
