"""Kafka's layout of the user data: byte for byte; and bytes of any kind do no harm."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import TaskAssignmentException
from millstream.group.codes import AssignorError
from millstream.group.java_bytes import ByteReader, ByteWriter
from millstream.group.userdata_layout import (
    LATEST_OFFSET,
    LATEST_SUPPORTED_VERSION,
    NEVER,
    AssignmentInfo,
    HostInfo,
    SubscriptionInfo,
)
from millstream.model import TaskId, TopicPartition

GOLDEN = json.loads((Path(__file__).parent / "userdata.json").read_text())
"""Written by Kafka Streams 4.3.1 itself; UserDataAll.java makes the file."""

OLDER = range(1, LATEST_SUPPORTED_VERSION)
PROCESS = UUID("00112233-4455-6677-8899-aabbccddeeff")


SUBSCRIPTION = SubscriptionInfo(
    process_id=PROCESS,
    user_end_point="höst:8080",
    task_offset_sums={TaskId(0, 3): LATEST_OFFSET, TaskId(7, 1): 1234567890123},
    unique_field=-5,
    error_code=4,
    client_tags={"zone": "öst"},
)
ASSIGNMENT = AssignmentInfo(
    active_tasks=(TaskId(0, 3), TaskId(7, 1)),
    standby_tasks={TaskId(1, 2): frozenset({TopicPartition("t\0ö😀", 4)})},
    partitions_by_host={HostInfo("a", 80): frozenset({TopicPartition("lines", 3)})},
    standby_partitions_by_host={HostInfo("b", 81): frozenset({TopicPartition("lines", 2)})},
    error_code=3,
    next_rebalance_ms=1700000000000,
)


# --- bytes that Kafka Streams wrote ----------------------------------------------------------------------


def test_a_subscription_has_the_bytes_that_kafka_streams_writes() -> None:
    """SubscriptionInfoTest, with upstream itself as the other side."""
    data = bytes.fromhex(GOLDEN["subscription"]["11"])
    assert SUBSCRIPTION.encode() == data
    assert SubscriptionInfo.decode(data) == SUBSCRIPTION


def test_an_assignment_has_the_bytes_that_kafka_streams_writes() -> None:
    """AssignmentInfoTest, with upstream itself as the other side; Java's own UTF-8 included. Equality leaves
    the next rebalance out, so that is compared by itself.
    """
    data = bytes.fromhex(GOLDEN["assignment"]["11"])
    assert ASSIGNMENT.encode() == data
    info = AssignmentInfo.decode(data)
    assert info == ASSIGNMENT
    assert info.next_rebalance_ms == 1700000000000


@pytest.mark.parametrize("version", OLDER)
def test_what_an_older_kafka_streams_wrote_is_refused_by_its_version(version: int) -> None:
    """No member of a Millstream group has ever spoken it."""
    with pytest.raises(TaskAssignmentException, match=r"version must be between 11 and|Failed to decode"):
        SubscriptionInfo.decode(bytes.fromhex(GOLDEN["subscription"][str(version)]))
    with pytest.raises(TaskAssignmentException, match=rf"used version: {version}; latest .* version: 11$"):
        AssignmentInfo.decode(bytes.fromhex(GOLDEN["assignment"][str(version)]))


def test_a_subscription_written_by_hand() -> None:
    """Version 11, field after field, from the table of the layout."""
    data = (
        b"\0\0\0\x0b"  # version
        b"\0\0\0\x0b"  # latest supported version
        b"\0\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"  # process id
        b"\0\0\0\x03h:1"  # end point
        b"\0\0\0\x01"  # one task:
        b"\0\0\0\x01\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff"  # 1_2, runs, no named topology
        b"\x07"  # unique field
        b"\0\0\0\x04"  # error code
        b"\0\0\0\x01"  # one tag:
        b"\0\0\0\x01k\0\0\0\x02vw"
    )
    info = SubscriptionInfo(PROCESS, "h:1", {TaskId(1, 2): LATEST_OFFSET}, 7, 4, {"k": "vw"})
    assert SubscriptionInfo.decode(data) == info
    assert info.encode() == data


def test_an_empty_assignment_written_by_hand() -> None:
    """Version 11: no tasks, an empty dictionary, two empty host maps, a code, and no next rebalance."""
    data = b"\0\0\0\x0b\0\0\0\x0b" + b"\0" * 20 + b"\0\0\0\x04" + b"\x7f" + b"\xff" * 7
    assert AssignmentInfo(error_code=4).encode() == data
    assert AssignmentInfo.decode(data).error_code == AssignorError.SHUTDOWN_REQUESTED


# --- upstream's rules ------------------------------------------------------------------------------------


def test_a_subscription_has_versions_that_fit() -> None:
    """SubscriptionInfoTest.shouldThrowForUnknownVersion1 and 2, and validateVersions."""
    for version, latest in ((0, 11), (12, 11), (10, 11), (3, -1), (11, -1)):
        with pytest.raises(ValueError, match=rf"^version must be between 11 and {latest}; was: {version}$"):
            SubscriptionInfo(version=version, latest_supported_version=latest)


def test_an_assignment_of_a_newer_version_says_which() -> None:
    """Upstream's text."""
    with pytest.raises(
        TaskAssignmentException,
        match=r"^Unable to decode assignment data: used version: 12; latest supported version: 11$",
    ):
        AssignmentInfo.decode(b"\0\0\0\x0c")


def test_of_a_newer_subscription_only_the_versions_are_read() -> None:
    """Version probing; such a value is never written."""
    info = SubscriptionInfo.decode(b"\0\0\0\x0c\0\0\0\x0d" + b"anything")
    assert (info.version, info.latest_supported_version, info.is_future) == (12, 13, True)
    assert (info.error_code, info.task_offset_sums) == (0, {})
    with pytest.raises(ValueError, match=r"version \[12\] > LATEST_SUPPORTED_VERSION \[11\]"):
        info.encode()


def test_the_versions_that_others_support_are_kept() -> None:
    """SubscriptionInfoTest and AssignmentInfoTest both have it."""
    info = SubscriptionInfo(latest_supported_version=13)
    assert SubscriptionInfo.decode(info.encode()).latest_supported_version == 13
    told = AssignmentInfo(commonly_supported_version=7)
    assert AssignmentInfo.decode(told.encode()).commonly_supported_version == 7


@pytest.mark.parametrize("message", [SubscriptionInfo, AssignmentInfo])
def test_tasks_of_named_topologies_are_refused(message: type[SubscriptionInfo | AssignmentInfo]) -> None:
    """Today's Kafka Streams has none, and here they would be taken for other tasks."""
    if message is SubscriptionInfo:
        data = SubscriptionInfo(task_offset_sums={TaskId(1, 2): 5}).encode()
        named = data.replace(b"\xff\xff", b"\0\x01n", 1)
    else:
        data = AssignmentInfo(active_tasks=(TaskId(1, 2),)).encode()
        named = data[:20] + b"\0\0\0\x01\0n" + data[24:]
    with pytest.raises(TaskAssignmentException, match="task 1_2 belongs to a named topology"):
        message.decode(named)


def test_a_number_that_does_not_fit_is_an_error() -> None:
    """Nothing is cut off in silence."""
    with pytest.raises(TaskAssignmentException, match="Failed to encode SubscriptionInfo: 128 does not fit"):
        SubscriptionInfo(unique_field=128).encode()
    with pytest.raises(TaskAssignmentException, match="Failed to encode AssignmentInfo"):
        AssignmentInfo(partitions_by_host={HostInfo("h" * 65536, 1): frozenset()}).encode()


def test_every_code_has_kafkas_sentence() -> None:
    """The numbers are on the wire, the sentences in operators' notes."""
    assert [int(code) for code in AssignorError] == [0, 1, 2, 3, 4]
    assert AssignorError.SHUTDOWN_REQUESTED.description == (
        "A KafkaStreams instance encountered a fatal error and requested a shutdown for the entire "
        "application."
    )
    assert all(code.description for code in AssignorError)


# --- Java's strings --------------------------------------------------------------------------------------


@given(st.text(max_size=300))
def test_javas_strings_come_back(text: str) -> None:
    """Modified UTF-8, with U+0000 and characters beyond U+FFFF."""
    out = ByteWriter("a test")
    out.utf(text)
    assert ByteReader(out.to_bytes(), "a test").utf() == text


@pytest.mark.parametrize(
    "data",
    [
        "😀".encode(),  # four bytes: UTF-8, and not Java's
        b"\xed\xa0\xbd",  # half of a surrogate pair
        b"\xc3",  # cut off
        b"\xff",
    ],
)
def test_what_is_not_javas_utf_8_is_refused(data: bytes) -> None:
    """DataInputStream.readUTF throws UTFDataFormatException for most; half a pair would break our logs."""
    with pytest.raises(TaskAssignmentException, match="is not modified UTF-8"):
        ByteReader(len(data).to_bytes(2, "big") + data, "a test").utf()


# --- bytes from anywhere ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [-1, 1, 2**31 - 1])
def test_a_count_that_cannot_be_true_is_corrupt(count: int) -> None:
    """Upstream checks counts since 4.3.1, before it makes arrays of that size."""
    data = b"\0\0\0\x0b\0\0\0\x0b" + count.to_bytes(4, "big", signed=True)
    with pytest.raises(TaskAssignmentException, match=r"^Corrupted user data byte\[\]\."):
        AssignmentInfo.decode(data)


TASKS = st.builds(TaskId, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 99)), max_size=3)
HOSTS = st.builds(HostInfo, st.text(max_size=9), st.integers(0, 65535))

SUBSCRIPTIONS = st.builds(
    SubscriptionInfo,
    st.uuids(),
    st.text(max_size=20),
    st.dictionaries(TASKS, st.integers(-3, 2**63 - 1), max_size=5),
    st.integers(-128, 127),
    st.integers(-(2**31), 2**31 - 1),
    st.dictionaries(st.text(max_size=9), st.text(max_size=20), max_size=3),
)

ASSIGNMENTS = st.builds(
    AssignmentInfo,
    st.lists(TASKS, max_size=5).map(tuple),
    st.dictionaries(TASKS, PARTITIONS, max_size=3),
    st.dictionaries(HOSTS, PARTITIONS, max_size=3),
    st.dictionaries(HOSTS, PARTITIONS, max_size=3),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, NEVER),
)


@given(SUBSCRIPTIONS)
def test_a_subscription_comes_back(info: SubscriptionInfo) -> None:
    """Any content survives encoding and decoding."""
    assert SubscriptionInfo.decode(info.encode()) == info


@given(ASSIGNMENTS)
def test_an_assignment_comes_back(info: AssignmentInfo) -> None:
    """Any content survives encoding and decoding."""
    assert AssignmentInfo.decode(info.encode()) == info


def only_says_no(data: bytes) -> None:
    """Any other exception fails the test."""
    with suppress(TaskAssignmentException):
        SubscriptionInfo.decode(data)
    with suppress(TaskAssignmentException):
        AssignmentInfo.decode(data)


@given(st.integers(-1, 13), st.binary(max_size=200))
def test_random_bytes_are_decoded_or_refused(version: int, rest: bytes) -> None:
    """Nothing but TaskAssignmentException comes out."""
    only_says_no(rest)
    only_says_no(version.to_bytes(4, "big", signed=True) + rest)


@given(
    st.one_of(SUBSCRIPTIONS, ASSIGNMENTS),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 10_000),
)
def test_damaged_bytes_are_decoded_or_refused(
    info: SubscriptionInfo | AssignmentInfo, changes: list[tuple[int, int]], end: int
) -> None:
    """Valid ones with some bytes changed and the end cut off."""
    data = bytearray(info.encode())
    for place, value in changes:
        data[place % len(data)] = value
    only_says_no(bytes(data))
    only_says_no(bytes(data[: end % len(data)]))
