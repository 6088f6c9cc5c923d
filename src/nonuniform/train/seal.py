"""Values on the store that prove who wrote them: HMAC with the job's secret.

In: a store and a secret that only the processes of the run have. Out: a store whose values carry
`hmac(secret, key, value)`; a value without a right one reads as absent, or raises where it was
waited for. A process that does not know the secret can't join, vote, or publish. It can still
disturb: whoever reaches the port may delete keys, and the sockets between ranks are torch's own.
Knows nothing of what the values mean.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import secrets
from typing import Protocol

from nonuniform.errors import RunFailed

_TAG = 32  # hex digits: 128 bits


class Store(Protocol):
    """What is needed of a store; torch's TCPStore and HashStore both do."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def check(self, keys: list[str]) -> bool: ...
    def wait(self, keys: list[str], timeout: datetime.timedelta) -> None: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...
    def delete_key(self, key: str) -> bool: ...


class Forged(RunFailed):
    """A value on the store was not written by this run."""


def new_secret() -> str:
    return secrets.token_hex(32)


class SealedStore:
    """A `Store` over another one. Counters are plain numbers and prove nothing."""

    def __init__(self, store: Store, secret: str) -> None:
        self.raw = store
        self._secret = secret.encode()

    def set(self, key: str, value: str) -> None:
        self.raw.set(key, self._seal(key, value))

    def get(self, key: str) -> bytes:
        return self._open(key, self.raw.get(key))

    def add(self, key: str, amount: int) -> int:
        return self.raw.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        return self.raw.check(keys)

    def wait(self, keys: list[str], timeout: datetime.timedelta) -> None:
        self.raw.wait(keys, timeout)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        sealed = self._seal(key, expected) if expected else ""
        return self._open(key, self.raw.compare_set(key, sealed, self._seal(key, desired)))

    def delete_key(self, key: str) -> bool:
        return self.raw.delete_key(key)

    def _seal(self, key: str, value: str) -> str:
        return self._tag(key, value.encode()) + value

    def _open(self, key: str, sealed: bytes) -> bytes:
        tag, value = sealed[:_TAG], sealed[_TAG:]
        if not hmac.compare_digest(tag, self._tag(key, value).encode()):
            raise Forged(f"{key} on the store of the run does not prove the job's secret")
        return value

    def _tag(self, key: str, value: bytes) -> str:
        text = key.encode() + b"\0" + value
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:_TAG]
