"""Python client of Torc, a distributed key-value service.

>>> with torc.connect("127.0.0.1:7401") as client:
...     client.put(b"user/1", b"Ada")
...     client.get(b"user/1")

`torc.aio` has the same API for asyncio. Keys and values are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional, Union

from torc import aio
from torc._build import build, plan_build
from torc._errors import Conflict, OutcomeUnknown, Refused, Timeout, TorcError, Unavailable, Unusable
from torc._settings import Path, Seconds, settings
from torc._torc import Buckets, BuildPlan, Client, Generation, Scan, Values, Version
from torc._types import Entry, Versioned

__all__ = [
    "Buckets",
    "BuildPlan",
    "Client",
    "Conflict",
    "Entry",
    "Generation",
    "OutcomeUnknown",
    "Refused",
    "Scan",
    "Timeout",
    "TorcError",
    "Unavailable",
    "Unusable",
    "Values",
    "Version",
    "Versioned",
    "aio",
    "build",
    "connect",
    "plan_build",
]


def connect(
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
    """Connect to the cluster of the nodes at `endpoints`: one `host:port` or several.

    `timeout` limits each operation with all its retries, `connect_timeout` connecting to one address; both in seconds.
    `tls_ca`, a PEM file of certificate authorities, encrypts all connections and trusts the nodes that they certify;
    `tls_cert` and `tls_key` are the client's certificate and its key. `token`, or the file that `token_file` names,
    is a token as `kvctl token create` prints it. It identifies the client instead of a certificate, and needs `tls_ca`.
    """
    return Client(
        settings(endpoints, namespace, timeout, connect_timeout, tls_ca, tls_cert, tls_key, token, token_file)
    )
