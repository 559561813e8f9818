import asyncio
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Optional, Union, final, overload

from typing_extensions import Buffer, Self

from torc._errors import TorcError
from torc._settings import Seconds
from torc._types import Arrow, Entry, Versioned

@final
class Version:
    """The version of a record. Versions of one key are ordered; a later write has a greater one."""

    def __new__(cls, text: str) -> Self:
        """Parse a version from the text that `str(version)` returns."""
    def __eq__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Version, /) -> bool: ...
    def __le__(self, other: Version, /) -> bool: ...
    def __gt__(self, other: Version, /) -> bool: ...
    def __ge__(self, other: Version, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Scan(Iterator[Entry]):
    """A running scan."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Entry: ...
    @property
    def cursor(self) -> bytes:
        """The position after the last record returned: `scan(after=cursor)` continues there, in any process."""
    def step(self) -> tuple[bool, Optional[Entry]]: ...

@final
class Values:
    """Values in the order of their keys, null for absent keys, as Arrow's `large_binary`."""

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: Optional[object] = None) -> tuple[object, object]: ...

@final
class Client:
    """A client of a cluster, in one namespace. Threads may share it.

    Ctrl-C interrupts a call: a read is dropped; the outcome of a write is then unknown.
    """

    def __new__(cls, settings: dict[str, Any]) -> Self:
        """Use `torc.connect`."""
    def namespace(self, name: str) -> Client:
        """A client of another namespace on the same connections."""
    def with_timeout(self, timeout: Seconds) -> Client:
        """A client on the same connections with another time limit per operation, in seconds."""
    def get(self, key: Buffer, *, stale: bool = False) -> Optional[bytes]:
        """Get the newest acknowledged value, or None. `stale`: any replica may answer, perhaps with an older value."""
    def get_versioned(self, key: Buffer, *, stale: bool = False) -> Optional[Versioned]:
        """Like `get`, with the version and the expiry of the value."""
    def put(
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
    def delete(self, key: Buffer, *, if_version: Optional[Version] = None) -> bool:
        """Delete a key. Return whether it had a value."""
    @overload
    def get_many(
        self, keys: Iterable[Buffer], *, return_exceptions: Literal[False] = False
    ) -> list[Optional[bytes]]:
        """Get the values of many keys, in order. `return_exceptions`: put failures of single keys into the list."""
    @overload
    def get_many(self, keys: Iterable[Buffer], *, return_exceptions: bool) -> list[Union[bytes, TorcError, None]]: ...
    @overload
    def put_many(
        self,
        records: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        ttl: Optional[Seconds] = None,
        return_exceptions: Literal[False] = False,
    ) -> list[Version]:
        """Store many records, each on its own (not a transaction). Return their versions, in order."""
    @overload
    def put_many(
        self,
        records: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        ttl: Optional[Seconds] = None,
        return_exceptions: bool,
    ) -> list[Union[Version, TorcError]]: ...
    def get_arrow(self, keys: Union[Arrow, Iterable[Buffer]]) -> Values:
        """Like `get_many`, as a column that `pyarrow.array(values)` and `polars.Series(values)` use without a copy."""
    def put_arrow(
        self, table: Arrow, *, key: str = "key", value: str = "value", ttl: Optional[Seconds] = None
    ) -> int:
        """Store the rows of a table of pyarrow, polars or any library with the Arrow PyCapsule interface.

        `key` and `value` name columns of bytes or text. Rows are stored in order, in batches; `timeout` limits each
        batch, and the first batch with a failure is the last. Return the number of rows.
        """
    def scan(
        self,
        *,
        keys_only: bool = False,
        limit: Optional[int] = None,
        contains: Optional[Iterable[Buffer]] = None,
        after: Optional[bytes] = None,
    ) -> Scan:
        """Return every record, in ring order, which looks random.

        Not a snapshot: a record that exists throughout is returned exactly once, others may or may not be. `contains`:
        return only records whose value contains one of these byte strings; nodes do the search. `timeout` limits each
        step, not the whole scan.
        """
    def close(self) -> None:
        """Refuse further operations of this client and of those on the same connections."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

@final
class Ticket:
    def cancel(self) -> None: ...

@final
class Core:
    def __new__(cls, settings: dict[str, Any]) -> Self: ...
    def fileno(self) -> int: ...
    def drain(self) -> int: ...
    @property
    def under_way(self) -> int: ...
    def close(self) -> None: ...
    def namespace(self, name: str) -> Core: ...
    def with_timeout(self, timeout: Seconds) -> Core: ...
    def reach(self, future: asyncio.Future[Any]) -> Ticket: ...
    def get(self, future: asyncio.Future[Any], key: Buffer, stale: bool, versioned: bool) -> Ticket: ...
    def put(
        self,
        future: asyncio.Future[Any],
        key: Buffer,
        value: Buffer,
        if_absent: bool,
        if_version: Optional[Version],
        if_older_than: Optional[Version],
        ttl: Optional[Seconds],
    ) -> Ticket: ...
    def delete(self, future: asyncio.Future[Any], key: Buffer, if_version: Optional[Version]) -> Ticket: ...
    def get_many(self, future: asyncio.Future[Any], keys: Iterable[Buffer], return_exceptions: bool) -> Ticket: ...
    def put_many(
        self,
        future: asyncio.Future[Any],
        records: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        ttl: Optional[Seconds],
        return_exceptions: bool,
    ) -> Ticket: ...
    def get_arrow(self, future: asyncio.Future[Any], keys: Union[Arrow, Iterable[Buffer]]) -> Ticket: ...
    def put_arrow(
        self, future: asyncio.Future[Any], table: Arrow, key: str, value: str, ttl: Optional[Seconds]
    ) -> Ticket: ...
    def scan(
        self,
        keys_only: bool,
        limit: Optional[int],
        contains: Optional[Iterable[Buffer]],
        after: Optional[bytes],
    ) -> Scan: ...
    def ahead(self, future: asyncio.Future[Any], scan: Scan) -> Ticket: ...

@final
class Buckets:
    """The buckets of keys, in the order of the keys, as Arrow's `int32`."""

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: Optional[object] = None) -> tuple[object, object]: ...

@final
class BuildPlan:
    """A build that tasks carry out. Pickle it to send it to them; it contains the secret of the reservation.

    The driver calls `begin`, each task writes the rows of its buckets, and the driver commits the receipts of the
    tasks. A task may run again, even twice at once: the same rows make files of the same names.
    """

    def __new__(cls, text: str) -> Self:
        """Use `torc.plan_build`."""
    def __getnewargs__(self) -> tuple[str]: ...
    @property
    def out(self) -> str:
        """The URL of the place where tasks send their files."""
    @property
    def buckets(self) -> int:
        """Number of buckets: ranges of the ring that are built separately."""
    def buckets_of(self, keys: Union[Arrow, Iterable[Buffer]]) -> Buckets:
        """The bucket of each key. One task needs all rows of a bucket."""
    def begin(self, *, overwrite: bool = False) -> None:
        """Check that `out` has no generation, or may have some with `overwrite`, and that it can be written."""
    def write(
        self,
        rows: Union[Arrow, Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        key: str = "key",
        value: str = "value",
        bucket: Optional[str] = None,
        scratch: Optional[Union[str, os.PathLike[str]]] = None,
    ) -> bytes:
        """In a task: build the files of these rows, send them to `out` and return a receipt for `commit`.

        Rows are sorted in a directory below `scratch`, by default the system's temporary directory. It takes the rows
        twice at most. `bucket` names a
        column with the bucket by which each row was partitioned: a row with a wrong bucket is refused. Without it, only
        the commit detects rows that were not partitioned.
        """
    def commit(self, receipts: Iterable[bytes], *, overwrite: bool = False) -> str:
        """Check the receipts of all tasks and write the manifest, which makes the files a generation. Return its URL.

        `kvctl generation attach URL` makes nodes fetch it, and `torc.Generation` opens one in a directory.
        """

def build(rows: object, settings: dict[str, Any], key: str, value: str) -> Generation: ...
def plan_build(settings: dict[str, Any], buckets: int) -> BuildPlan: ...
@final
class Generation:
    """A generation in a directory, with indexes in memory and values in files. Threads may share it."""

    def __new__(cls, directory: Union[str, os.PathLike[str]]) -> Self: ...
    def get(self, key: Buffer) -> Optional[bytes]:
        """The value of a key, or None. An absent key looks present with probability `false_positive_rate`."""
    def __len__(self) -> int:
        """The number of its keys."""
    @property
    def digest(self) -> bytes:
        """Its identity: the same rows give the same digest."""
    @property
    def duplicates(self) -> int:
        """Rows left out, because another row with their key was kept."""
    @property
    def file_bytes(self) -> int: ...
    @property
    def index_bytes(self) -> int:
        """Memory of its indexes, bytes."""
    @property
    def false_positive_rate(self) -> float:
        """The probability that an absent key looks present. 0 if the shape has keys."""
