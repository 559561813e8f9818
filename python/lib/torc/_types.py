"""Results of operations."""

from __future__ import annotations

from typing import NamedTuple, Optional, Protocol, Union

from torc._torc import Version


class Versioned(NamedTuple):
    """A value with its version and expiry."""

    value: bytes
    version: Version
    #: When the value expires, Unix milliseconds. None: never.
    expires_at_ms: Optional[int]


class Entry(NamedTuple):
    """A record of a scan. With `keys_only`, its value is empty."""

    key: bytes
    value: bytes
    version: Version
    #: When the value expires, Unix milliseconds. None: never.
    expires_at_ms: Optional[int]


class ArrowArray(Protocol):
    """A column or batch of Arrow, in one piece."""

    def __arrow_c_array__(self, requested_schema: Optional[object] = None) -> tuple[object, object]: ...


class ArrowStream(Protocol):
    """A column or table of Arrow, in pieces."""

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...


Arrow = Union[ArrowArray, ArrowStream]
