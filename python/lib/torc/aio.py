"""Torc for asyncio.

>>> async with await torc.aio.connect("127.0.0.1:7401") as client:
...     await client.put(b"user/1", b"Ada")
...     await client.get(b"user/1")

A client belongs to the event loop in which it was connected. Cancelling a task drops the read that it waits for. A
write continues, and its outcome is then unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, Union, overload

from torc._errors import Unusable
from torc._settings import Path, Seconds, settings
from torc._torc import Core
from torc._torc import Scan as _Scan

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from torc._errors import TorcError
    from torc._torc import Ticket, Values, Version
    from torc._types import Arrow, Entry, Versioned

__all__ = ["Client", "Scan", "connect"]


async def connect(
    endpoints: Union[str, Iterable[str]],
    *,
    namespace: str = "default",
    timeout: Seconds = 10.0,
    connect_timeout: Seconds = 1.0,
    tls_ca: Optional[Path] = None,
    tls_cert: Optional[Path] = None,
    tls_key: Optional[Path] = None,
    token: Optional[str] = None,
    token_file: Optional[Path] = None,
) -> Client:
    """Connect as `torc.connect` does, in the running event loop."""
    core = Core(
        settings(endpoints, namespace, timeout, connect_timeout, tls_ca, tls_cert, tls_key, token, token_file)
    )
    client = Client(core, _Loop(core))
    try:
        await client._cancellable(core.reach)
    except BaseException:
        await client.close()
        raise
    return client


class _Loop:
    """The event loop of a client and of those that its `namespace` and `with_timeout` returned."""

    def __init__(self, core: Core) -> None:
        self.loop = asyncio.get_running_loop()
        self._core = core
        self._fileno = core.fileno()
        self._idle: Optional[asyncio.Future[None]] = None
        self.loop.add_reader(self._fileno, self._drain)

    def _drain(self) -> None:
        if self._core.drain() == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def close(self) -> None:
        while self._core.under_way:
            self._idle = self._idle if self._idle and not self._idle.done() else self.loop.create_future()
            await asyncio.shield(self._idle)
        self.loop.remove_reader(self._fileno)


class Client:
    """A client of a cluster, in one namespace. Tasks of one event loop may share it."""

    def __init__(self, core: Core, loop: _Loop) -> None:
        self._core = core
        self._loop = loop

    def _future(self) -> asyncio.Future[Any]:
        loop = self._loop.loop
        if asyncio.get_running_loop() is not loop:
            raise Unusable("this client belongs to another event loop: connect in this one", kind="other_loop")
        return loop.create_future()

    async def _cancellable(self, start: Callable[..., Ticket], *arguments: Any) -> Any:
        future = self._future()
        ticket = start(future, *arguments)
        try:
            return await future
        except BaseException:
            ticket.cancel()
            future.cancel()
            raise

    def namespace(self, name: str) -> Client:
        """A client of another namespace on the same connections."""
        return Client(self._core.namespace(name), self._loop)

    def with_timeout(self, timeout: Seconds) -> Client:
        """A client on the same connections with another time limit per operation, in seconds."""
        return Client(self._core.with_timeout(timeout), self._loop)

    async def get(self, key: Buffer, *, stale: bool = False) -> Optional[bytes]:
        """Get the newest acknowledged value, or None. `stale`: any replica may answer, perhaps with an older value."""
        value: Optional[bytes] = await self._cancellable(self._core.get, key, stale, False)
        return value

    async def get_versioned(self, key: Buffer, *, stale: bool = False) -> Optional[Versioned]:
        """Like `get`, with the version and the expiry of the value."""
        value: Optional[Versioned] = await self._cancellable(self._core.get, key, stale, True)
        return value

    async def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        if_absent: bool = False,
        if_version: Optional[Version] = None,
        if_older_than: Optional[Version] = None,
        ttl: Optional[Seconds] = None,
    ) -> Version:
        """Store a value if the condition holds, and return its version. `ttl`: seconds until the value expires."""
        future = self._future()
        self._core.put(future, key, value, if_absent, if_version, if_older_than, ttl)
        version: Version = await future
        return version

    async def delete(self, key: Buffer, *, if_version: Optional[Version] = None) -> bool:
        """Delete a key. Return whether it had a value."""
        future = self._future()
        self._core.delete(future, key, if_version)
        existed: bool = await future
        return existed

    @overload
    async def get_many(
        self, keys: Iterable[Buffer], *, return_exceptions: Literal[False] = False
    ) -> list[Optional[bytes]]: ...
    @overload
    async def get_many(
        self, keys: Iterable[Buffer], *, return_exceptions: bool
    ) -> list[Union[bytes, TorcError, None]]: ...
    async def get_many(self, keys: Iterable[Buffer], *, return_exceptions: bool = False) -> Any:
        """Get the values of many keys, in order. `return_exceptions`: put failures of single keys into the list."""
        return await self._cancellable(self._core.get_many, keys, return_exceptions)

    @overload
    async def put_many(
        self,
        records: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        ttl: Optional[Seconds] = None,
        return_exceptions: Literal[False] = False,
    ) -> list[Version]: ...
    @overload
    async def put_many(
        self,
        records: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        ttl: Optional[Seconds] = None,
        return_exceptions: bool,
    ) -> list[Union[Version, TorcError]]: ...
    async def put_many(
        self,
        records: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        ttl: Optional[Seconds] = None,
        return_exceptions: bool = False,
    ) -> Any:
        """Store many records, each on its own (not a transaction). Return their versions, in order."""
        future = self._future()
        self._core.put_many(future, records, ttl, return_exceptions)
        return await future

    async def get_arrow(self, keys: Union[Arrow, Iterable[Buffer]]) -> Values:
        """Like `get_many`, as a column that `pyarrow.array(values)` and `polars.Series(values)` use without a copy."""
        values: Values = await self._cancellable(self._core.get_arrow, keys)
        return values

    async def put_arrow(
        self, table: Arrow, *, key: str = "key", value: str = "value", ttl: Optional[Seconds] = None
    ) -> int:
        """Store the rows of a table; see `torc.Client.put_arrow`. Cancelling it leaves one batch in doubt."""
        stored: int = await self._cancellable(self._core.put_arrow, table, key, value, ttl)
        return stored

    def scan(
        self,
        *,
        keys_only: bool = False,
        limit: Optional[int] = None,
        contains: Optional[Iterable[Buffer]] = None,
        after: Optional[bytes] = None,
    ) -> Scan:
        """Return every record, in ring order, which looks random; see `torc.Client.scan`."""
        return Scan(self, self._core.scan(keys_only, limit, contains, after))

    async def close(self) -> None:
        """Refuse further operations of this client and of those on the same connections; wait for running ones."""
        self._core.close()
        await self._loop.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()


class Scan(AsyncIterator["Entry"]):
    """A running scan."""

    def __init__(self, client: Client, scan: _Scan) -> None:
        self._client = client
        self._scan = scan

    @property
    def cursor(self) -> bytes:
        """The position after the last record returned: `scan(after=cursor)` continues there, in any process."""
        return self._scan.cursor

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        while True:
            known, entry = self._scan.step()
            if known:
                if entry is None:
                    raise StopAsyncIteration
                return entry
            await self._client._cancellable(self._client._core.ahead, self._scan)
