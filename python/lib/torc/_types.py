"""What operations return."""

from __future__ import annotations

from typing import NamedTuple, Optional

from torc._torc import Version


class Versioned(NamedTuple):
    """A value, which write it comes from, and when it expires."""

    value: bytes
    version: Version
    #: Unix milliseconds from which on the key counts as absent. None: never.
    expires_at_ms: Optional[int]


class Entry(NamedTuple):
    """A record of a scan. Its value is empty where only keys were asked for."""

    key: bytes
    value: bytes
    version: Version
    #: Unix milliseconds from which on the key counts as absent. None: never.
    expires_at_ms: Optional[int]
