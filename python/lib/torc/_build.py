"""Build generations, the immutable content of static namespaces, without a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, Optional, Union

from torc import _torc
from torc._settings import Path

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from torc._types import Arrow

#: The key of `kvctl build`, so the same rows make the same slices.
_OFFLINE_KEY = b"torc generation, of no cluster.."


def build(
    rows: Union[Arrow, Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
    out: Path,
    *,
    shape: Literal["values", "keyless", "set", "ids"] = "values",
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
    """Build a generation in the directory `out` from pairs of key and value, or from an Arrow table or stream.

    Rows may come in any order and number: the build sorts them on disk, with about `memory` bytes of memory. `shape`
    selects what to keep: "values" keeps keys and values, "keyless" a fingerprint of each key and a value of
    `payload_bytes`, "set" only fingerprints, "ids" keys with a number each. `key` and `value` name the columns of a
    table. `reservation` is the file that `kvctl generation reserve` wrote: the generation is then for that cluster,
    which sets `digest_key` and `partitions`.

    `source` is any text that identifies the rows. After an interruption, the same call with the same text, and the same
    rows in the same order, continues; without `source`, it is refused. Ctrl-C works while the build takes rows.
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
    shape: Literal["values", "keyless", "set", "ids"] = "values",
    payload_bytes: int = 0,
    fingerprint_bits: int = 16,
    duplicates: Literal["error", "first", "last"] = "error",
    digest_key: bytes = _OFFLINE_KEY,
    partitions: int = 4096,
    reservation: Optional[Path] = None,
    memory: int = 1 << 30,
    gate_rate: float = 0.01,
) -> _torc.BuildPlan:
    """Plan a build whose buckets are built by tasks: processes, or machines.

    `out` is where they send their files: a directory that all of them share, or a URL (`s3://BUCKET/PREFIX` or
    `file:///PATH`). The credentials of an object store are in the environment of each process.

    A bucket is a range of the ring; `buckets`, their number, is rounded up to a power of two. One task needs all rows
    of a bucket, and may build any number of buckets. `memory` is per task. Other arguments are as in `build`.

    This reads only the `reservation` and writes nothing: see `BuildPlan`.
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
