"""The client of event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Callable

import pytest

import torc
from nodes import PATIENCE_S, run_python


def with_client(playground: list[str], test: Callable[[torc.aio.Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with await torc.aio.connect(playground, timeout=PATIENCE_S) as client:
            await test(client)

    asyncio.run(run())


def test_every_operation(playground: list[str], key: bytes) -> None:
    async def test(client: torc.aio.Client) -> None:
        assert await client.get(key) is None
        first = await client.put(key, b"1", if_absent=True)
        with pytest.raises(torc.Conflict):
            await client.put(key, b"2", if_absent=True)
        second = await client.put(key, b"2", if_version=first, ttl=60)
        found = await client.get_versioned(key, stale=False)
        assert found is not None and found[:2] == (b"2", second) and found.expires_at_ms
        assert await client.delete(key, if_version=second) is True
        assert await client.delete(key) is False
        records = {b"%b/%d" % (key, number): b"needle of aio" for number in range(300)}
        assert len(await client.put_many(records)) == 300
        assert await client.get_many(records) == list(records.values())
        mixed = await client.get_many([b"", key], return_exceptions=True)
        assert isinstance(mixed[0], torc.Refused) and mixed[1] is None
        with pytest.raises(TypeError, match="a key must be bytes, not str"):
            await client.get("text")  # type: ignore[arg-type]
        with pytest.raises(torc.Refused):
            await client.namespace("nowhere").get(key)

    with_client(playground, test)


def test_a_scan_is_an_asynchronous_iterator(playground: list[str], key: bytes) -> None:
    async def test(client: torc.aio.Client) -> None:
        records = {b"%b/%d" % (key, number): key for number in range(500)}
        await client.put_many(records)
        scan = client.scan(contains=[key])
        first = await anext_of(scan)
        seen = [entry.key async for entry in scan]
        assert sorted([first.key, *seen]) == sorted(records)
        assert [entry async for entry in scan] == []
        late = client.scan(contains=[key], limit=3)
        await anext_of(late)
        assert (await anext_of(client.scan(contains=[key], after=late.cursor))).key == seen[0]

    with_client(playground, test)


async def anext_of(scan: torc.aio.Scan) -> torc.Entry:
    return await scan.__anext__()


def test_a_thousand_gets_at_once(playground: list[str], key: bytes) -> None:
    async def test(client: torc.aio.Client) -> None:
        records = {b"%b/%d" % (key, number): b"%d" % number for number in range(1000)}
        await client.put_many(records)
        values = await asyncio.gather(*(client.get(name) for name in records))
        assert values == list(records.values())
        await asyncio.gather(*(client.put(name, b"new") for name in records))
        assert set(await asyncio.gather(*(client.get(name) for name in records))) == {b"new"}

    with_client(playground, test)


def test_a_cancelled_get_is_dropped_and_the_client_goes_on(playground: list[str], key: bytes) -> None:
    async def test(client: torc.aio.Client) -> None:
        await client.put(key, b"value")
        gets = [asyncio.ensure_future(client.get(key)) for _ in range(100)]
        # One turn of the loop: they have begun, and none has been answered to the loop.
        await asyncio.sleep(0)
        for get in gets:
            get.cancel()
        ended = await asyncio.gather(*gets, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) or end == b"value" for end in ended)
        assert any(isinstance(end, asyncio.CancelledError) for end in ended)
        assert await client.get(key) == b"value"

    with_client(playground, test)


def test_a_cancelled_scan_step_loses_no_record(playground: list[str], key: bytes) -> None:
    async def test(client: torc.aio.Client) -> None:
        records = {b"%b/%d" % (key, number): key for number in range(20)}
        await client.put_many(records)
        scan, seen = client.scan(contains=[key]), []
        while True:
            step = asyncio.ensure_future(anext_of(scan))
            await asyncio.sleep(0)
            step.cancel()
            try:
                seen.append((await step).key)
            except StopAsyncIteration:
                break
            except asyncio.CancelledError:
                try:
                    seen.append((await anext_of(scan)).key)
                except StopAsyncIteration:
                    break
        assert sorted(seen) == sorted(records)

    with_client(playground, test)


def test_a_cancelled_put_goes_on(playground: list[str], key: bytes) -> None:
    async def test(client: torc.aio.Client) -> None:
        put = asyncio.ensure_future(client.put(key, b"value"))
        await asyncio.sleep(0)
        put.cancel()
        await asyncio.wait([put])
        while await client.get(key) is None:
            pass
        assert await client.get(key) == b"value"

    with_client(playground, test)


def test_closing_waits_for_what_is_under_way(playground: list[str], key: bytes) -> None:
    async def run() -> None:
        client = await torc.aio.connect(playground, timeout=PATIENCE_S)
        puts = [asyncio.ensure_future(client.put(b"%b/%d" % (key, number), b"")) for number in range(50)]
        await asyncio.sleep(0)
        await client.close()
        assert all(put.done() for put in puts) or len(await asyncio.gather(*puts)) == 50
        with pytest.raises(torc.Unusable, match="closed"):
            await client.get(key)
        await client.close()

    asyncio.run(run())


def test_a_client_belongs_to_its_event_loop(playground: list[str], key: bytes) -> None:
    client = asyncio.run(torc.aio.connect(playground))

    async def use() -> None:
        with pytest.raises(torc.Unusable, match="another event loop"):
            await client.get(key)

    asyncio.run(use())


def test_a_failed_connect_leaves_nothing_behind() -> None:
    async def run() -> None:
        with pytest.raises(torc.Unavailable):
            await torc.aio.connect("127.0.0.1:1", timeout=0.2)

    asyncio.run(run())


ABANDONED = """
import asyncio, sys, torc
async def run():
    client = await torc.aio.connect(sys.argv[1:])
    asyncio.ensure_future(client.put(b"abandoned", b""))
    await asyncio.sleep(0)
asyncio.run(run())
"""


def test_a_process_ends_that_closed_nothing(playground: list[str]) -> None:
    done = run_python(ABANDONED, *playground)
    assert done.returncode == 0 and done.stderr == "", done.stderr
