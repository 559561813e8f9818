"""The settings of a connection, checked by the extension."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Optional, Union

Seconds = Union[float, timedelta]
Path = Union[str, "os.PathLike[str]"]


def settings(
    endpoints: Union[str, Iterable[str]],
    namespace: str,
    timeout: Seconds,
    connect_timeout: Seconds,
    tls_ca: Optional[Path],
    tls_cert: Optional[Path],
    tls_key: Optional[Path],
    token: Optional[str],
    token_file: Optional[Path],
) -> dict[str, Any]:
    return {
        "endpoints": [endpoints] if isinstance(endpoints, str) else list(endpoints),
        "namespace": namespace,
        "timeout": timeout,
        "connect_timeout": connect_timeout,
        "tls_ca": tls_ca,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "token": token,
        "token_file": token_file,
    }
