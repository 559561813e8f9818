"""Tables of pyarrow and polars, by the PyCapsule interface alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import torc

# Their releases need newer Pythons than this package does.
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

#: More rows than are sent together.
COUNT = 9_000


def records(key: bytes) -> tuple[list[bytes], list[bytes]]:
    return [b"%b/%05d" % (key, row) for row in range(COUNT)], [b"%d" % row for row in range(COUNT)]


def test_a_table_is_stored_and_found(client: torc.Client, key: bytes) -> None:
    keys, values = records(key)
    assert client.put_arrow(pa.table({"key": keys, "value": values})) == COUNT
    assert client.get_many(keys) == values
    found = client.get_arrow(pa.array([*keys, b"absent"]))
    assert len(found) == COUNT + 1
    assert pa.array(found).to_pylist() == [*values, None]
    assert pl.Series(found).to_list() == [*values, None]
    assert pa.array(client.get_arrow(keys[:2])).to_pylist() == values[:2]


def test_a_data_frame_of_polars_is_stored_and_found(client: torc.Client, key: bytes) -> None:
    keys, values = records(key)
    frame = pl.DataFrame({"id": keys, "text": [value.decode() for value in values]})
    chunks = pl.concat([frame[:7], frame[7:8500], frame[8500:]], rechunk=False)
    assert client.put_arrow(chunks, key="id", value="text", ttl=3600) == COUNT
    assert pl.Series(client.get_arrow(chunks["id"])).to_list() == values


@pytest.mark.parametrize("kind", ["binary", "large_binary", "binary_view", "string", "large_string", "string_view"])
def test_every_type_of_bytes_and_text(client: torc.Client, key: bytes, kind: str) -> None:
    column = pa.array([key.decode() + "/a", key.decode() + "/b"]).cast(pa.binary()).cast(getattr(pa, kind)())
    table = pa.table({"key": column, "value": column})
    # A slice begins within its buffers.
    assert client.put_arrow(table.slice(1)) == 1
    assert client.get_many([key + b"/a", key + b"/b"]) == [None, key + b"/b"]


def test_digests_of_fixed_size(client: torc.Client) -> None:
    column = pa.array([b"0123456789abcdef", b"fedcba9876543210"], pa.binary(16))
    assert client.put_arrow(pa.record_batch({"key": column, "value": column})) == 2
    assert pa.array(client.get_arrow(column)).to_pylist() == column.to_pylist()


def test_what_cannot_be_stored_is_refused_before_anything_is_sent(client: torc.Client, key: bytes) -> None:
    wrong: list[tuple[Any, type[Exception], str]] = [
        (pa.table({"key": [key], "value": [7]}), TypeError, "`value` has the type Int64"),
        (pa.table({"key": [key], "value": pa.array([None], pa.binary())}), ValueError, "has nulls"),
        (pa.table({"key": [key]}), ValueError, "no column `value`"),
        (pa.array([key]), TypeError, "pass a table"),
        ([(key, b"")], TypeError, "PyCapsule"),
    ]
    for table, kind, message in wrong:
        with pytest.raises(kind, match=message):
            client.put_arrow(table)
    assert client.get(key) is None


def test_a_row_that_fails_is_named(client: torc.Client, key: bytes) -> None:
    with pytest.raises(torc.Refused, match="item 1 and 0 more of 2") as error:
        client.put_arrow(pa.table({"key": [key, b""], "value": [b"stored", b"refused"]}))
    assert error.value.changed == "unknown" and client.get(key) == b"stored"
    with pytest.raises(torc.Refused):
        client.get_arrow([b""])


def test_in_an_event_loop(playground: list[str], key: bytes) -> None:
    async def run() -> None:
        async with await torc.aio.connect(playground) as client:
            keys, values = records(key)
            table = pa.table({"key": keys, "value": values}).slice(0, 100)
            assert await client.put_arrow(table) == 100
            assert pa.array(await client.get_arrow(table["key"])).to_pylist() == values[:100]

    asyncio.run(run())
