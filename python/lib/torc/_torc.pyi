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
        """Read what `str` wrote."""
    def __eq__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Version, /) -> bool: ...
    def __le__(self, other: Version, /) -> bool: ...
    def __gt__(self, other: Version, /) -> bool: ...
    def __ge__(self, other: Version, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Scan(Iterator[Entry]):
    """A scan under way."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Entry: ...
    @property
    def cursor(self) -> bytes:
        """The position behind the last record given: `scan(after=cursor)` goes on there, in any process."""
    def step(self) -> tuple[bool, Optional[Entry]]: ...

@final
class Values:
    """Values in the order of their keys, null where there is none, as Arrow's `large_binary`."""

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: Optional[object] = None) -> tuple[object, object]: ...

@final
class Client:
    """A connection to a cluster, as seen from one namespace. Threads may share it.

    Ctrl-C ends a wait: a read is dropped, of a write nobody knows then whether it happened.
    """

    def __new__(cls, settings: dict[str, Any]) -> Self:
        """Use `torc.connect`."""
    def namespace(self, name: str) -> Client:
        """The same connections, another namespace."""
    def with_timeout(self, timeout: Seconds) -> Client:
        """The same connections, another time limit of each operation, in seconds."""
    def get(self, key: Buffer, *, stale: bool = False) -> Optional[bytes]:
        """The newest acknowledged value, or None. `stale`: any replica may answer, perhaps with an older one."""
    def get_versioned(self, key: Buffer, *, stale: bool = False) -> Optional[Versioned]:
        """`get` with the version of the value and when it expires."""
    def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        if_absent: bool = False,
        if_version: Optional[Version] = None,
        ttl: Optional[Seconds] = None,
    ) -> Version:
        """Store a value, if the condition holds. `ttl`: seconds after which the key counts as absent."""
    def delete(self, key: Buffer, *, if_version: Optional[Version] = None) -> bool:
        """Delete a key. Whether it had a value."""
    @overload
    def get_many(
        self, keys: Iterable[Buffer], *, return_exceptions: Literal[False] = False
    ) -> list[Optional[bytes]]:
        """The values of many keys, in their order. `return_exceptions`: failures of single keys stand in the list."""
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
        """Store many records, each on its own: there is no transaction. Their versions, in their order."""
    @overload
    def put_many(
        self,
        records: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        ttl: Optional[Seconds] = None,
        return_exceptions: bool,
    ) -> list[Union[Version, TorcError]]: ...
    def get_arrow(self, keys: Union[Arrow, Iterable[Buffer]]) -> Values:
        """`get_many` as a column: `pyarrow.array(values)` and `polars.Series(values)` take it without a copy."""
    def put_arrow(
        self, table: Arrow, *, key: str = "key", value: str = "value", ttl: Optional[Seconds] = None
    ) -> int:
        """Store the rows of a table of pyarrow, polars or any other with the Arrow PyCapsule interface.

        `key` and `value` name its columns, of bytes or text. Rows are stored in batches, in their order; the first one
        with a failure is the last, and `timeout` limits each. The number of rows.
        """
    def scan(
        self,
        *,
        keys_only: bool = False,
        limit: Optional[int] = None,
        contains: Optional[Iterable[Buffer]] = None,
        after: Optional[bytes] = None,
    ) -> Scan:
        """Every record, in ring order, which looks random.

        Not a snapshot: a record that is there throughout is given exactly once, others may be given or not.
        `contains`: only records whose value contains one of these byte strings, which the nodes search for.
        `timeout` limits each step, not the whole.
        """
    def close(self) -> None:
        """Take no more operations, from this client and from those with the same connections."""
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
    """The buckets of keys, in their order, as Arrow's `int32`."""

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: Optional[object] = None) -> tuple[object, object]: ...

@final
class BuildPlan:
    """A build that tasks do. Pickle it to bring it to them; it has the secret of the reservation in it.

    The driver begins, each task writes the rows of its buckets, the driver commits what the tasks returned. A task may be
    run again, and twice at once: the same rows make files of the same names.
    """

    def __new__(cls, text: str) -> Self:
        """Use `torc.plan_build`."""
    def __getnewargs__(self) -> tuple[str]: ...
    @property
    def out(self) -> pathlib.Path: ...
    @property
    def buckets(self) -> int:
        """Ranges of the ring that are built apart."""
    def buckets_of(self, keys: Union[Arrow, Iterable[Buffer]]) -> Buckets:
        """The bucket of each key: one task needs all rows of a bucket."""
    def begin(self, *, overwrite: bool = False) -> None:
        """Make `out` ready. A generation that is there is refused, or with `overwrite` stays until the commit."""
    def write(
        self,
        rows: Union[Arrow, Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        key: str = "key",
        value: str = "value",
        bucket: Optional[str] = None,
        scratch: Optional[Union[str, os.PathLike[str]]] = None,
    ) -> bytes:
        """Build the files of these rows in `out`, for the receipt that is returned. What tasks do.

        Rows are sorted in a directory of their own below `scratch`, by default that of temporary files. `bucket` names a
        column of a table that has the buckets by which rows were partitioned: a row of another one is refused. Without
        it, rows that were not partitioned are noticed at the commit.
        """
    def commit(self, receipts: Iterable[bytes], *, overwrite: bool = False) -> Generation:
        """Check the receipts of all tasks and write the manifest, which makes `out` a generation."""

def build(rows: object, settings: dict[str, Any], key: str, value: str) -> Generation: ...
def plan_build(settings: dict[str, Any], buckets: int) -> BuildPlan: ...
@final
class Generation:
    """A generation in a directory: its indexes in memory, its values in their files. Threads may share it."""

    def __new__(cls, directory: Union[str, os.PathLike[str]]) -> Self: ...
    def get(self, key: Buffer) -> Optional[bytes]:
        """The value of a key, or None. Of an absent key it may have one with `false_positive_rate`."""
    def __len__(self) -> int:
        """Its keys."""
    @property
    def digest(self) -> bytes:
        """What it is named by: the same rows give the same."""
    @property
    def duplicates(self) -> int:
        """Rows that were left out, because another row of their key counts."""
    @property
    def file_bytes(self) -> int: ...
    @property
    def index_bytes(self) -> int:
        """Bytes of memory that its indexes take."""
    @property
    def false_positive_rate(self) -> float:
        """The probability that an absent key is taken for one that is there. 0 with keys."""
