"""Exceptions. `changed` says whether a write may have happened."""

from __future__ import annotations

from typing import Literal, Optional


class TorcError(Exception):
    """An operation failed. The message says why, and what to do."""

    #: The exact kind: "invalid", "no_such_namespace", "overloaded", "corrupt" and others.
    kind: str
    #: "no": the operation did not happen and will not. "unknown": it may have happened, or may
    #: still happen.
    changed: Literal["no", "unknown"]
    #: The same call may succeed later and is safe to repeat. The library has retried it until the
    #: time limit.
    retryable: bool
    #: Seconds to wait before a retry, if a node advised it.
    retry_after: Optional[float]

    def __init__(
        self,
        message: str,
        *,
        kind: str = "internal",
        changed: Literal["no", "unknown"] = "no",
        retryable: bool = False,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.changed = changed
        self.retryable = retryable
        self.retry_after = retry_after


class Conflict(TorcError):
    """The condition of a write did not hold. Read the key, then decide."""


class OutcomeUnknown(TorcError):
    """A write was sent, but its outcome is unknown: it may still happen. Read the key before you write again."""


class Refused(TorcError):
    """The cluster or the library refuses this call, because of limits, permissions or names. Retries do not help."""


class Timeout(TorcError, TimeoutError):
    """The time limit passed before an answer came. Allow more time."""


class Unavailable(TorcError):
    """No node could carry out the call within the time limit. Retry later."""


class Unusable(TorcError, RuntimeError):
    """The client is closed, or was connected before a fork or in another event loop. Connect again here."""


_CLASSES: dict[str, type[TorcError]] = {
    "condition_not_met": Conflict,
    "outcome_unknown": OutcomeUnknown,
    "invalid": Refused,
    "refused": Refused,
    "denied": Refused,
    "no_such_namespace": Refused,
    "no_such_node": Refused,
    "timeout": Timeout,
    "unavailable": Unavailable,
    "overloaded": Unavailable,
    "out_of_space": Unavailable,
    "forked": Unusable,
    "closed": Unusable,
}


def make(kind: str, message: str, maybe_applied: bool, retryable: bool, retry_after: Optional[float]) -> TorcError:
    """Create the exception that the extension raises."""
    changed: Literal["no", "unknown"] = "unknown" if maybe_applied else "no"
    kind_class = _CLASSES.get(kind, TorcError)
    return kind_class(message, kind=kind, changed=changed, retryable=retryable, retry_after=retry_after)
