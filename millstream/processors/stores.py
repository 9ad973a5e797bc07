"""What a processor sees of its stores: Kafka Streams' writable interfaces, over a ByteStore.

Bytes: what a ByteStore holds is a value behind its timestamp, 8 bytes (`stores/api.py: to_stored`). Its keys:

    key-value   the key
    window      segment, 8 bytes | key, escaped | 00 00 | start, 8 bytes [| sequence number, 4 bytes]
    session     segment, 8 bytes | key, escaped | 00 00 | end, 8 bytes | start, 8 bytes
    versioned   key, escaped | 00 00 | timestamp, 8 bytes

The sequence number is there in stores that keep duplicates. Changelogs have Kafka's keys.
"""

from __future__ import annotations

from millstream.processors.graph import StoreSpec

__all__ = ["changelog_record"]


def changelog_record(store: StoreSpec, key: bytes, stored: bytes) -> tuple[bytes, bytes | None, int] | None:
    """What the changelog has for an entry of a ByteStore: key, value and timestamp; None: nothing.

    For whoever writes a changelog anew.
    """
    raise NotImplementedError
