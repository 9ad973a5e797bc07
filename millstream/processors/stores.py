"""A processor's view of its stores: Kafka Streams' writable interfaces, over a ByteStore.

Bytes: an entry of a ByteStore is the timestamp, 8 bytes, and then the value (`stores/store_base.py:
to_stored`). Its keys:

    key-value   the key
    window      segment, 8 bytes | key, escaped | 00 00 | start, 8 bytes [| sequence number, 4 bytes]
    session     segment, 8 bytes | key, escaped | 00 00 | end, 8 bytes | start, 8 bytes
    versioned   L | key, escaped | 00 00                        newest version
                V | key, escaped | 00 00 | time, newest first   any other version
                E | valid to, 8 bytes | one of the two          when that can be forgotten

Except in a key-value store, the empty key holds the store's own state: the newest time of all, from which
expiry is computed. There is a sequence number if duplicates are kept. A version's value is preceded by the
byte 01, and a deletion is the byte 00 alone; in a V, 8 bytes with the end of its validity come before that.
Changelogs have Kafka's keys.

A window or session older than the retention is invisible at once, and an expired segment is dropped by the
put that makes it expire. Versions are dropped from time to time.

Source: org.apache.kafka.streams.state (KeyValueStore, TimestampedKeyValueStore, WindowStore,
    TimestampedWindowStore, SessionStore, VersionedKeyValueStore).
Differs: windows and sessions of several keys are ordered by key, not by time. If a versioned store rejects a
    put, its changelog does not get it either. The records that it returns include the end of their validity.
"""

from __future__ import annotations

from struct import Struct

from millstream.model import StoreKind
from millstream.processors.graph import StoreSpec
from millstream.processors.holding import ByteStore, Changed, HeldStore, StoreIterator, StoreScope
from millstream.processors.key_values import KeyValueStore, TimestampedKeyValueStore
from millstream.processors.versions import VersionedKeyValueStore
from millstream.processors.window_stores import SessionStore, TimestampedWindowStore, WindowStore

__all__ = [
    "ByteStore",
    "KeyValueStore",
    "SessionStore",
    "StoreIterator",
    "StoreScope",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "VersionedKeyValueStore",
    "WindowStore",
    "store_of",
]

_MARK = b""
_TIME = Struct(">q")
_TIMES = Struct(">qq")
_NUMBER = Struct(">i")
_A_DELETION = b"\x00"


def store_of(spec: StoreSpec, data: ByteStore, scope: StoreScope, changed: Changed | None) -> HeldStore:
    """The interface of a store; `changed` receives the records for its changelog."""
    kind: type[HeldStore]
    if spec.kind is StoreKind.SESSION:
        kind = SessionStore
    elif spec.kind is StoreKind.WINDOW:
        kind = TimestampedWindowStore if spec.timestamped else WindowStore
    elif spec.history_ms is not None:
        kind = VersionedKeyValueStore
    else:
        kind = TimestampedKeyValueStore if spec.timestamped else KeyValueStore
    return kind(spec, data, scope, changed)
