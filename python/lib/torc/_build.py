"""Building generations: immutable tables for static namespaces, without a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, Optional, Union

from torc import _torc
from torc._settings import Path

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from torc._types import Arrow

#: That of `kvctl build`: the same rows make the same files.
_OFFLINE_KEY = b"torc generation, of no cluster.."


def build(
    rows: Union[Arrow, Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
    out: Path,
    *,
    shape: Literal["values", "keyless", "set"] = "values",
    payload_bytes: int = 0,
    fingerprint_bits: int = 16,
    duplicates: Literal["error", "first", "last"] = "error",
    digest_key: bytes = _OFFLINE_KEY,
    partitions: int = 4096,
    reservation: Optional[Path] = None,
    memory: int = 1 << 30,
    workers: int = 2,
    gate_rate: float = 0.01,
    source: Optional[str] = None,
    key: str = "key",
    value: str = "value",
) -> _torc.Generation:
    """Build a generation in the directory `out`: pairs of key and value, or an Arrow table or stream of them.

    Rows may come in any order and any number: they are sorted on disk, in about `memory` bytes. `shape` says what is
    kept: keys and values; with "keyless" a fingerprint of each key and `payload_bytes` of value; with "set" fingerprints
    alone. `key` and `value` name the columns of a table. `reservation` is what `kvctl generation reserve` wrote: then the
    generation is for that cluster, which says `digest_key` and `partitions`.

    `source` says by any text what the rows are. The same call with the same text and the same rows in the same order
    goes on where one was that did not end; without it that is refused. Ctrl-C is heeded while rows are taken.
    """
    settings = {
        "out": out,
        "shape": shape,
        "payload_bytes": payload_bytes,
        "fingerprint_bits": fingerprint_bits,
        "duplicates": duplicates,
        "digest_key": digest_key,
        "partitions": partitions,
        "reservation": reservation,
        "memory": memory,
        "workers": workers,
        "gate_rate": gate_rate,
        "source": uuid.uuid4().hex if source is None else source,
    }
    return _torc.build(rows, settings, key, value)


def plan_build(
    out: Path,
    *,
    buckets: int = 64,
    shape: Literal["values", "keyless", "set"] = "values",
    payload_bytes: int = 0,
    fingerprint_bits: int = 16,
    duplicates: Literal["error", "first", "last"] = "error",
    digest_key: bytes = _OFFLINE_KEY,
    partitions: int = 4096,
    reservation: Optional[Path] = None,
    memory: int = 1 << 30,
    gate_rate: float = 0.01,
) -> _torc.BuildPlan:
    """Plan a build whose `buckets` are built by tasks: processes, or machines that all see the directory `out`.

    A bucket is a range of the ring; the number is rounded up to a power of two. One task needs all rows of a bucket, and
    builds any number of them. `memory` is that of each task. The rest is as in `build`.

    Nothing is read but the `reservation`, and nothing is written: see `BuildPlan`.
    """
    settings = {
        "out": out,
        "shape": shape,
        "payload_bytes": payload_bytes,
        "fingerprint_bits": fingerprint_bits,
        "duplicates": duplicates,
        "digest_key": digest_key,
        "partitions": partitions,
        "reservation": reservation,
        "memory": memory,
        "workers": 1,
        "gate_rate": gate_rate,
        "source": "rows that an engine gives to tasks",
    }
    return _torc.plan_build(settings, buckets)
