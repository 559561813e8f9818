"""What goes wrong: nodes, time limits, settings, processes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import torc
from nodes import PATIENCE_S, Node, free_run, run_python


def test_where_nothing_listens_the_cluster_is_unavailable() -> None:
    with pytest.raises(torc.Unavailable) as error:
        torc.connect(f"127.0.0.1:{free_run(1)}", timeout=0.2)
    assert error.value.retryable and error.value.changed == "no"
    assert isinstance(error.value, torc.TorcError)


def test_where_nobody_answers_the_time_limit_ends_the_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises((torc.Timeout, torc.Unavailable)) as error:
            torc.connect(f"127.0.0.1:{port}", timeout=0.3)
    assert error.value.changed == "no"


def test_settings_are_checked(tmp_path: Path) -> None:
    for endpoints in ([], ["localhost"], ["https://node:7400"]):
        with pytest.raises(torc.Refused):
            torc.connect(endpoints)
    with pytest.raises(ValueError, match="need each other"):
        torc.connect("node:7400", tls_cert="node.pem")
    with pytest.raises(ValueError, match=r"missing\.pem"):
        torc.connect("node:7400", tls_ca=tmp_path / "missing.pem")
    with pytest.raises(torc.Refused, match="time limit must not be zero"):
        torc.connect("node:7400", timeout=0)


def test_one_node_of_three_is_killed_and_work_goes_on(cluster: tuple[list[str], list[Node]]) -> None:
    endpoints, nodes = cluster
    with torc.connect(endpoints, timeout=PATIENCE_S) as client:
        records = {b"before/%d" % number: b"%d" % number for number in range(60)}
        client.put_many(records)
        nodes[2].kill()
        assert [client.get(key) for key in records] == list(records.values())
        assert client.get_many(records) == list(records.values())
        for number in range(60):
            put_in_doubt(client, b"after/%d" % number)
        assert len([entry for entry in client.scan() if entry.key.startswith(b"after/")]) == 60
    with torc.connect(endpoints, timeout=PATIENCE_S) as late:
        assert late.get(b"before/7") == b"7"


def put_in_doubt(client: torc.Client, key: bytes) -> None:
    """As an application does it whose write is idempotent."""
    try:
        client.put(key, b"value")
    except torc.OutcomeUnknown as error:
        assert (error.changed, error.retryable) == ("unknown", False)
        client.put(key, b"value")


def test_without_a_majority_writes_are_not_called_done(cluster: tuple[list[str], list[Node]]) -> None:
    endpoints, nodes = cluster
    with torc.connect(endpoints, timeout=PATIENCE_S) as client:
        client.put(b"key", b"before")
        nodes[1].kill()
        nodes[2].kill()
        short = client.with_timeout(1.0)
        with pytest.raises(torc.TorcError) as error:
            short.put(b"key", b"after")
        assert isinstance(error.value, (torc.OutcomeUnknown, torc.Timeout, torc.Unavailable))
        assert (error.value.changed == "unknown") == isinstance(error.value, torc.OutcomeUnknown)
        with pytest.raises((torc.Timeout, torc.Unavailable)) as error:
            short.get(b"key")
        assert error.value.changed == "no"


FORK = """
import os, sys, torc
client = torc.connect(sys.argv[1:])
client.put_many({b"fork": b"parent", b"other": b"", b"third": b""})
scan = client.scan()
next(scan)
child = os.fork()
if child == 0:
    for use in (lambda: client.get(b"fork"), lambda: next(scan), client.close):
        try:
            use()
        except torc.Unusable as error:
            assert error.kind == "forked" and "before a fork" in str(error), error
        else:
            os._exit(1)
    del client, scan, use
    with torc.connect(sys.argv[1:]) as own:
        own.put(b"fork", b"child")
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert client.get(b"fork") == b"child"
next(scan)
"""


def test_a_forked_child_is_told_to_connect_and_can(playground: list[str]) -> None:
    done = run_python(FORK, *playground)
    assert done.returncode == 0, done.stderr


INTERRUPT = """
import os, signal, socket, sys, threading, torc
silent = socket.create_server(("127.0.0.1", 0))
def interrupt():
    silent.accept()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    torc.connect(f"127.0.0.1:{silent.getsockname()[1]}", timeout=100_000, connect_timeout=100_000)
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_ctrl_c_ends_a_wait() -> None:
    done = run_python(INTERRUPT)
    assert done.returncode == 7, done.stderr
