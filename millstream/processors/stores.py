"""What a processor sees of its stores: Kafka Streams' writable interfaces, over a ByteStore.

Bytes: what a ByteStore holds is a value behind its timestamp, 8 bytes (`stores/api.py: to_stored`). Its keys:

    key-value   the key
    window      segment, 8 bytes | key, escaped | 00 00 | start, 8 bytes [| sequence number, 4 bytes]
    session     segment, 8 bytes | key, escaped | 00 00 | end, 8 bytes | start, 8 bytes
    versioned   L | key, escaped | 00 00                        newest version
                V | key, escaped | 00 00 | time, newest first   any other version
                E | valid to, 8 bytes | one of the two          when that can be forgotten

Except in a key-value store, what stands under the empty key is what the store knows of itself: the newest
time of all, behind which things are forgotten. The sequence number is there where duplicates are kept.
Before a version's value is a byte, 01, or 00 alone for a deletion, and of a V before that, 8 bytes, how
long it was valid. Changelogs have Kafka's keys.

A window or a session is gone at once when it is older than the retention, and its segment in the very put
that makes it so. Versions are forgotten now and then.

Source: org.apache.kafka.streams.state (KeyValueStore, TimestampedKeyValueStore, WindowStore,
    TimestampedWindowStore, SessionStore, VersionedKeyValueStore).
Differs: windows and sessions of several keys come in the order of the keys, not of the times. What a
    versioned store does not put is not in its changelog either, and what it had is told with how long.
"""

from __future__ import annotations

from struct import Struct

from millstream.model import StoreKind
from millstream.processors.graph import StoreSpec
from millstream.processors.holding import ByteStore, Changed, HeldStore, Scope, StoreIterator
from millstream.processors.key_values import KeyValueStore, TimestampedKeyValueStore
from millstream.processors.versions import VersionedKeyValueStore
from millstream.processors.windows import SessionStore, TimestampedWindowStore, WindowStore
from millstream.stores.api import timestamp_of
from millstream.stores.keys import session_key, unescaped, window_key

__all__ = [
    "ByteStore",
    "KeyValueStore",
    "Scope",
    "SessionStore",
    "StoreIterator",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "VersionedKeyValueStore",
    "WindowStore",
    "changelog_record",
    "store_of",
]

_MARK = b""
_TIME = Struct(">q")
_TIMES = Struct(">qq")
_NUMBER = Struct(">i")
_A_DELETION = b"\x00"


def store_of(spec: StoreSpec, data: ByteStore, scope: Scope, changed: Changed | None) -> HeldStore:
    """The interface that a store has; `changed` is told what its changelog is to have."""
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


def changelog_record(store: StoreSpec, key: bytes, stored: bytes) -> tuple[bytes, bytes | None, int] | None:
    """What the changelog has for an entry of a ByteStore: key, value and timestamp; None: nothing.

    For whoever writes a changelog anew.
    """
    if store.kind is StoreKind.KEY_VALUE and store.history_ms is None:
        return key, stored[8:], timestamp_of(stored)
    if key == _MARK:
        return None
    if store.kind is StoreKind.SESSION:
        end, start = _TIMES.unpack_from(key, len(key) - 16)
        return session_key(unescaped(key[8:-16]), start, end), stored[8:], timestamp_of(stored)
    if store.kind is StoreKind.WINDOW:
        tail = 12 if store.duplicates else 8
        (start,) = _TIME.unpack_from(key, len(key) - tail)
        (sequence,) = _NUMBER.unpack_from(key, len(key) - 4) if store.duplicates else (0,)
        return window_key(unescaped(key[8:-tail]), start, sequence), stored[8:], timestamp_of(stored)
    if key[:1] == b"E":
        return None
    body, at = (key[1:], 8) if key[:1] == b"L" else (key[1:-8], 16)
    value = None if stored[at : at + 1] == _A_DELETION else stored[at + 1 :]
    return unescaped(body), value, timestamp_of(stored)
