"""Connections with TLS, and tokens, to a cluster that `--secure` founded."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import torc
from nodes import PATIENCE_S, Node, beside_kvd, free_run

#: The line of the welcome after `kvctl login`: a token, and the digest of the authority.
ADMIN = re.compile(r"^ *kvctl login \S+\n *([0-9a-f]{16}\.[0-9a-f]{64})\.[0-9a-f]+ *$", re.MULTILINE)


class Secure(NamedTuple):
    endpoints: list[str]
    authority: Path
    admin: str
    #: The file of a token that may only read.
    reader: Path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """Three secure nodes in one process."""
    kvctl = beside_kvd("kvctl")
    directory = tmp_path_factory.mktemp("secure")
    first = free_run(12)
    arguments = ["playground", "--secure", "--partitions", "64", "--first-grpc-port", str(first)]
    arguments += ["--first-http-port", str(first + 3), "--first-resp-port", str(first + 6)]
    arguments += ["--first-peer-port", str(first + 9)]
    node = Node(directory, arguments)
    endpoints = [f"127.0.0.1:{first + number}" for number in range(3)]
    authority = directory / "data" / "node-1" / "tls" / "ca.pem"
    try:
        admin = admin_token(node)
        with torc.connect(endpoints, timeout=PATIENCE_S, tls_ca=authority, token=admin) as client:
            client.put(b"ready", b"yes")
        identity = ["--endpoint", endpoints[0], "--tls-ca", str(authority), "--token", admin]
        create = ["token", "create", "reader", "--role", "read"]
        created = subprocess.run(
            [kvctl, *identity, *create], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True
        )
        reader = directory / "reader.token"
        reader.write_text(created.stdout)
        yield Secure(endpoints, authority, admin, reader)
    finally:
        node.kill()
        shutil.rmtree(directory, ignore_errors=True)


def admin_token(node: Node) -> str:
    """The token that the playground prints once its cluster serves."""
    until = time.monotonic() + PATIENCE_S
    while True:
        printed = node.log.read_text()
        found = ADMIN.search(printed)
        if found:
            return found[1]
        assert node.process.poll() is None and time.monotonic() < until, printed
        time.sleep(0.05)


def wrong(token: str) -> str:
    """The same token with another secret."""
    name, secret = token.split(".")
    return f"{name}.{'0' * len(secret)}"


def test_a_token_identifies_a_client_of_threads(secure: Secure, key: bytes) -> None:
    with torc.connect(secure.endpoints, timeout=PATIENCE_S, tls_ca=secure.authority, token=secure.admin) as client:
        client.put(key, b"value")
        assert client.get(key) == b"value"
        assert client.get_many([key, b"absent"]) == [b"value", None]
    with torc.connect(secure.endpoints, tls_ca=secure.authority, token_file=secure.reader) as reader:
        assert reader.with_timeout(PATIENCE_S).get(key) == b"value"
        for put in (lambda: reader.put(key, b"other"), lambda: reader.put_many({key: b"other"})):
            with pytest.raises(torc.Refused, match="needs write") as error:
                put()
            assert (error.value.kind, error.value.changed, error.value.retryable) == ("denied", "no", False)
        assert reader.with_timeout(PATIENCE_S).get(key) == b"value"


def test_a_token_identifies_a_client_of_asyncio(secure: Secure, key: bytes) -> None:
    async def use() -> None:
        ca, endpoints = secure.authority, secure.endpoints
        async with await torc.aio.connect(endpoints, timeout=PATIENCE_S, tls_ca=ca, token=secure.admin) as client:
            await client.put(key, b"value")
        async with await torc.aio.connect(
            endpoints, timeout=PATIENCE_S, tls_ca=ca, token_file=secure.reader
        ) as reader:
            assert await reader.get(key) == b"value"
            with pytest.raises(torc.Refused, match="needs write") as error:
                await reader.put(key, b"other")
            assert (error.value.kind, error.value.changed) == ("denied", "no")
            assert await reader.get(key) == b"value"
        with pytest.raises(torc.Refused) as error:
            await torc.aio.connect(endpoints, timeout=PATIENCE_S, tls_ca=ca, token=wrong(secure.admin))
        assert error.value.kind == "denied"

    asyncio.run(use())


def test_a_wrong_token_or_none_is_refused(secure: Secure) -> None:
    for token in (wrong(secure.admin), None):
        with pytest.raises(torc.Refused) as error:
            torc.connect(secure.endpoints, timeout=PATIENCE_S, tls_ca=secure.authority, token=token)
        assert (error.value.kind, error.value.changed) == ("denied", "no")
        assert secure.admin not in str(error.value)


def test_a_token_is_checked_before_anything_is_sent(secure: Secure, tmp_path: Path) -> None:
    for token, authority in ((secure.admin, None), ("secret", secure.authority)):
        with pytest.raises(torc.Refused) as error:
            torc.connect(secure.endpoints, tls_ca=authority, token=token)
        assert error.value.kind == "invalid"
        assert token not in str(error.value), "messages contain no secrets"
    with pytest.raises(ValueError, match="exclude each other"):
        torc.connect(secure.endpoints, tls_ca=secure.authority, token=secure.admin, token_file=secure.reader)
    with pytest.raises(ValueError, match=r"missing\.token"):
        torc.connect(secure.endpoints, tls_ca=secure.authority, token_file=tmp_path / "missing.token")


def test_a_client_refuses_an_authority_that_it_does_not_know(secure: Secure, tmp_path: Path) -> None:
    kvctl = beside_kvd("kvctl")
    subprocess.run([kvctl, "ca", "create", str(tmp_path / "ca")], check=True, timeout=PATIENCE_S)
    with pytest.raises((torc.Unavailable, torc.Timeout)):
        torc.connect(secure.endpoints, timeout=1.0, tls_ca=tmp_path / "ca" / "ca.pem", token=secure.admin)
