"""The layouts of windows' and sessions' keys: Kafka's, byte for byte, and ours, which keeps the order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.stores.keys import (
    MAX_TIME_MS,
    escaped,
    pack_time,
    session_key,
    session_key_parts,
    unescaped,
    window_key,
    window_key_parts,
)

KEYS = st.binary(max_size=6) | st.lists(st.sampled_from([0, 1, 254, 255]), max_size=6).map(bytes)
TIMES = st.integers(0, MAX_TIME_MS)


def test_a_windows_key_in_the_changelog_is_kafkas() -> None:
    """The key, the start in eight bytes, and four of a sequence number, all big-endian."""
    assert window_key(b"ab", 258) == b"ab\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00"
    assert window_key(b"", 0, 7) == b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07"
    assert window_key(b"k", 1_700_000_000_000) == b"k\x00\x00\x01\x8b\xcf\xe5\x68\x00\x00\x00\x00\x00"


def test_a_sessions_key_in_the_changelog_is_kafkas() -> None:
    """The key, and then the end before the start, eight bytes each."""
    written = b"ab\x00\x00\x00\x00\x00\x00\x02\x01\x00\x00\x00\x00\x00\x00\x01\x02"
    assert session_key(b"ab", 258, 513) == written
    assert session_key_parts(written) == (b"ab", 258, 513)


def test_the_parts_of_a_windows_key_come_from_its_end() -> None:
    """The key may have any length, and any bytes."""
    written = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x05"
    assert window_key_parts(written) == (b"\0\0\0\0", 256, 5)
    assert window_key_parts(b"\0" * 12) == (b"", 0, 0)


def test_too_few_bytes_are_no_key() -> None:
    """Eleven for a window, fifteen for a session."""
    with pytest.raises(ValueError, match="11 bytes are too few for the key of a window"):
        window_key_parts(b"\0" * 11)
    with pytest.raises(ValueError, match="15 bytes are too few for the key of a session"):
        session_key_parts(b"\0" * 15)


@given(KEYS, TIMES, TIMES)
def test_what_is_written_is_read_again(key: bytes, first: int, second: int) -> None:
    """Both layouts of the changelog and the escaping of ours are checked."""
    assert window_key_parts(window_key(key, first)) == (key, first, 0)
    assert session_key_parts(session_key(key, first, second)) == (key, first, second)
    assert unescaped(escaped(key)) == key


def test_our_layout_of_a_key_is_these_bytes() -> None:
    """A zero is written 00 FF, and 00 00 ends it."""
    assert escaped(b"") == b"\x00\x00"
    assert escaped(b"a\x00b") == b"a\x00\xffb\x00\x00"
    assert escaped(b"\x00\xff") == b"\x00\xff\xff\x00\x00"


@given(KEYS, TIMES, KEYS, TIMES)
def test_our_layout_is_in_the_order_of_keys_and_then_times(
    key: bytes, time: int, other_key: bytes, other_time: int
) -> None:
    """Keys may have any bytes, and times any value."""
    ours, others = escaped(key) + pack_time(time), escaped(other_key) + pack_time(other_time)
    assert (ours < others) == ((key, time) < (other_key, other_time))
    assert (ours == others) == ((key, time) == (other_key, other_time))


def test_kafkas_layout_does_not_keep_the_order_of_keys() -> None:
    """This is why there is another one."""
    assert window_key(b"a\0", 0) < window_key(b"a", 2**56)
