"""The client of threads, against three nodes."""

from __future__ import annotations

import array
import copy
import pickle
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import torc

if TYPE_CHECKING:
    from typing_extensions import Buffer


def test_what_was_put_is_got_and_what_was_deleted_is_absent(client: torc.Client, key: bytes) -> None:
    assert client.get(key) is None
    first = client.put(key, b"Ada")
    assert client.get(key) == b"Ada"
    assert client.put(key, b"Grace") > first
    assert client.delete(key) is True
    assert client.get(key) is None
    assert client.delete(key) is False


@pytest.mark.parametrize("value", [b"", b"\0", bytes(1 << 20)], ids=["empty", "zero", "1 MiB"])
def test_values_come_back_as_they_were(client: torc.Client, key: bytes, value: bytes) -> None:
    client.put(key, value)
    assert client.get(key) == value
    assert client.get_many([key]) == [value]


def test_a_key_has_1_to_1024_bytes_and_a_value_1_mib(client: torc.Client) -> None:
    longest = b"k" * 1024
    client.put(longest, b"v")
    assert client.get(longest) == b"v"
    for refused in (lambda: client.get(b""), lambda: client.get(longest + b"k"), lambda: client.put(b"k", bytes(2**20 + 1))):
        with pytest.raises(torc.Refused) as error:
            refused()
        assert (error.value.kind, error.value.changed, error.value.retryable) == ("invalid", "no", False)


def test_any_buffer_is_taken(client: torc.Client, key: bytes) -> None:
    wide = memoryview(b"a-b-c-d-")[::2]
    numbers = array.array("H", [1, 2, 3])
    given_and_stored: list[tuple[Buffer, bytes]] = [
        (bytearray(b"array"), b"array"),
        (memoryview(b"view"), b"view"),
        (wide, b"abcd"),
        (numbers, numbers.tobytes()),
    ]
    for given, stored in given_and_stored:
        client.put(bytearray(key), given)
        assert client.get(memoryview(key)) == stored


def test_text_is_refused_and_nothing_is_sent(client: torc.Client, key: bytes) -> None:
    with pytest.raises(TypeError, match="a key must be bytes, not str: encode it"):
        client.get("user/1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a value must be bytes, not str"):
        client.put(key, "Ada")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a value must be bytes, not int"):
        client.put(key, 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="as a list"):
        client.get_many(b"abc")  # type: ignore[arg-type]
    assert client.get(key) is None


def test_a_put_if_absent_happens_once(client: torc.Client, key: bytes) -> None:
    client.put(key, b"first", if_absent=True)
    with pytest.raises(torc.Conflict) as error:
        client.put(key, b"second", if_absent=True)
    assert (error.value.changed, error.value.retryable) == ("no", False)
    assert client.get(key) == b"first"


def test_a_write_on_a_version_fails_when_there_is_a_newer_one(client: torc.Client, key: bytes) -> None:
    old = client.put(key, b"1")
    new = client.put(key, b"2", if_version=old)
    for stale_write in (lambda: client.put(key, b"3", if_version=old), lambda: client.delete(key, if_version=old)):
        with pytest.raises(torc.Conflict):
            stale_write()
    assert client.delete(key, if_version=new) is True
    with pytest.raises(ValueError, match="exclude each other"):
        client.put(key, b"4", if_absent=True, if_version=new)
    with pytest.raises(TypeError, match=r"torc\.Version"):
        client.put(key, b"4", if_version=str(new))  # type: ignore[arg-type]


def test_a_write_below_a_version_replaces_only_what_is_older(client: torc.Client, key: bytes) -> None:
    bound = client.put(key, b"1")
    with pytest.raises(torc.Conflict):
        client.put(key, b"2", if_older_than=bound)
    newer = client.put(key, b"3")
    assert client.delete(key) is True
    with pytest.raises(torc.Conflict):
        client.put(key, b"5", if_older_than=newer)
    client.put(key + b"-absent", b"x", if_older_than=newer)
    assert client.get(key + b"-absent") == b"x"


def test_versions_are_ordered_and_survive_text_and_pickle(client: torc.Client, key: bytes) -> None:
    first, second = client.put(key, b"1"), client.put(key, b"2")
    assert first < second and first != second and len({first, second, first}) == 2
    assert torc.Version(str(first)) == first == pickle.loads(pickle.dumps(first)) == copy.copy(first)
    assert torc.Version("1.10.1") > torc.Version("1.9.1"), "numbers, not text"
    with pytest.raises(ValueError, match="not a version"):
        torc.Version("1.2")


def test_a_value_with_a_time_to_live_expires(client: torc.Client, key: bytes) -> None:
    version = client.put(key, b"long", ttl=timedelta(hours=1))
    found = client.get_versioned(key)
    assert found is not None and (found.value, found.version) == (b"long", version)
    assert found.expires_at_ms is not None
    client.put(key, b"short", ttl=0.001)
    while client.get(key) is not None:
        pass
    client.put(key, b"for ever")
    found = client.get_versioned(key)
    assert found is not None and found.expires_at_ms is None
    for wrong in (-1, float("nan"), 1e300):
        with pytest.raises(ValueError, match="seconds"):
            client.put(key, b"", ttl=wrong)
    with pytest.raises(torc.Refused):
        client.put(key, b"", ttl=0)


def test_many_keys_keep_their_order(client: torc.Client, key: bytes) -> None:
    records = [(b"%b/%d" % (key, number), b"%d" % number) for number in range(2500)]
    versions = client.put_many(records)
    found = client.get_versioned(records[-1][0])
    assert len(versions) == len(records) and found is not None and found.version == versions[-1]
    keys = [name for name, _ in records]
    absent = [key + b"/absent"]
    assert client.get_many(keys + absent) == [value for _, value in records] + [None]
    assert client.get_many(iter(keys[:3])) == [b"0", b"1", b"2"]
    assert client.get_many([]) == []
    assert client.put_many(dict(records[:2]), ttl=60)[0] > versions[0]


def test_a_batch_tells_of_each_item(client: torc.Client, key: bytes) -> None:
    client.put(key, b"here")
    mixed = client.get_many([key, b""], return_exceptions=True)
    assert mixed[0] == b"here" and isinstance(mixed[1], torc.Refused)
    with pytest.raises(torc.Refused, match="item 1 and 0 more of 2") as error:
        client.get_many([key, b""])
    assert error.value.changed == "no"
    with pytest.raises(torc.Refused) as error:
        client.put_many([(key, b"there"), (b"", b"nowhere")])
    assert error.value.changed == "unknown", "the first record is stored"
    assert client.get(key) == b"there"
    with pytest.raises(torc.Refused) as error:
        client.put_many([(b"", b"nowhere")])
    assert error.value.changed == "no"


def test_a_scan_gives_every_record_once_and_goes_on_at_its_cursor(client: torc.Client, key: bytes) -> None:
    records = {b"%b/%d" % (key, number): b"needle %d" % number for number in range(700)}
    client.put_many(records)
    found = {entry.key: entry.value for entry in client.scan() if entry.key.startswith(key + b"/")}
    assert found == records

    scan = client.scan(contains=[b"needle 69"])
    first = next(scan)
    rest = list(client.scan(contains=[b"needle 69"], after=scan.cursor))
    names = {b"%b/%d" % (key, number) for number in [69, *range(690, 700)]}
    assert {first.key, *(entry.key for entry in rest)} == names
    assert first.key not in {entry.key for entry in rest}

    assert len(list(client.scan(limit=5))) == 5
    assert {entry.value for entry in client.scan(keys_only=True, limit=5)} == {b""}
    with pytest.raises(torc.Refused, match="cursor"):
        client.scan(after=b"xyz")


def test_cursors_behind_every_record_leave_the_rest(client: torc.Client, key: bytes) -> None:
    client.put_many({b"%b/%d" % (key, number): key for number in range(2)})
    whole = [entry.key for entry in client.scan(contains=[key])]
    scan, seen = client.scan(contains=[key]), []
    for entry in scan:
        seen.append(entry.key)
        assert [later.key for later in client.scan(contains=[key], after=scan.cursor)] == whole[len(seen) :]
    assert seen == whole and len(whole) == 2


def test_another_namespace_must_exist(client: torc.Client) -> None:
    with pytest.raises(torc.Refused, match="namespace create") as error:
        client.namespace("nowhere").get(b"key")
    assert error.value.kind == "no_such_namespace"


def test_a_stale_get_answers_too(client: torc.Client, key: bytes) -> None:
    client.put(key, b"value")
    while client.get(key, stale=True) != b"value":
        pass


def test_eight_threads_share_a_client(client: torc.Client, key: bytes) -> None:
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(100):
                name = b"%b/%d/%d" % (key, thread, number)
                client.put(name, name)
                assert client.get(name) == name
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_closed_client_says_so(playground: list[str]) -> None:
    with torc.connect(playground[0]) as client:
        other = client.with_timeout(30)
        client.put(b"closing", b"")
    for closed in (client, other):
        with pytest.raises(torc.Unusable, match="closed"):
            closed.get(b"closing")
    client.close()
