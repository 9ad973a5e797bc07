"""What Millstream says inside Kafka's layout, and that nothing in it can do harm."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import TaskAssignmentException
from millstream.group.codes import AssignorError
from millstream.group.userdata import MOST_TRAILER_BYTES, Assignment, MemberInfo, Program, fitting
from millstream.group.userdata_layout import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    AssignmentInfo,
    SubscriptionInfo,
)
from millstream.model import TaskId

FULL = MemberInfo(
    process_id=UUID(int=7),
    client_id="app-A",
    threads=2,
    running=frozenset({TaskId(0, 0), TaskId(1, 0)}),
    stopping=frozenset({TaskId(0, 0)}),
    tasks={TaskId(1, 0): LATEST_OFFSET, TaskId(1, 1): 55},
    up_to_date=frozenset({TaskId(1, 0)}),
    endpoint="host:8080",
    error_code=AssignorError.SHUTDOWN_REQUESTED,
    reason="ZeroDivisionError: division by zero",
    topology="f00d",
    warm=True,
    serdes={"counts": ('{"serde": "string"}', '{"serde": "long"}')},
    program=Program((TaskId(0, 0), TaskId(1, 0), TaskId(1, 1)), (TaskId(1, 0), TaskId(1, 1)), 1),
    tags={"zone": "eu"},
    rack="eu-1a",
    unique_field=-3,
)
TOLD = Assignment(
    error_code=AssignorError.SHUTDOWN_REQUESTED,
    reason="disk full",
    asked_by="app-B",
    missing_topics=("lines",),
    active=(TaskId(1, 0), TaskId(1, 1)),
    withheld=(TaskId(1, 1),),
    standby=(TaskId(1, 2),),
    hosts={"host:8080": ((TaskId(1, 0),), (TaskId(1, 2),))},
    members={"app-A": (TaskId(1, 0),)},
    serdes={"counts": ("k", "v")},
    rebalance_wanted=True,
    leader="app-A",
    warming=(TaskId(1, 2),),
)


def read(info: SubscriptionInfo) -> MemberInfo:
    return MemberInfo.from_subscription(SubscriptionInfo.decode(info.encode()))


def with_tag(name: str, value: str) -> SubscriptionInfo:
    info = FULL.to_subscription()
    return replace(info, client_tags={**info.client_tags, f"millstream.{name}": value})


def with_trailer(text: bytes) -> bytes:
    return AssignmentInfo().encode() + b"mill" + len(text).to_bytes(4, "big") + text


def test_a_member_comes_back() -> None:
    """Every field travels."""
    assert read(FULL.to_subscription()) == FULL
    assert read(MemberInfo(UUID(int=1)).to_subscription()) == MemberInfo(UUID(int=1))


def test_a_member_of_a_version_without_racks_has_none() -> None:
    """And one of such a version leaves the tag alone; without a client.rack there is no tag (KIP-925)."""
    tag = "millstream.rack"
    info = FULL.to_subscription()
    without = {key: value for key, value in info.client_tags.items() if key != tag}
    assert info.client_tags[tag] == "eu-1a"
    assert read(replace(info, client_tags=without)) == replace(FULL, rack="")
    assert tag not in replace(FULL, rack="").to_subscription().client_tags


def test_a_client_runs_what_is_active_and_not_withheld() -> None:
    """The rest is still another client's."""
    assert TOLD.runs == (TaskId(1, 0),)
    assert Assignment.decode(TOLD.encode()) == TOLD


def test_what_kafka_has_a_field_for_is_in_that_field() -> None:
    """KIP-671: the error code is in the subscription itself, so that any version of a leader sees it."""
    info = FULL.to_subscription()
    assert (info.version, info.error_code, info.user_end_point) == (11, 4, "host:8080")
    assert info.task_offset_sums == {TaskId(1, 0): LATEST_OFFSET, TaskId(1, 1): 55}
    assert {key for key in info.client_tags if not key.startswith("millstream.")} == {"zone"}


def test_the_unique_field_wraps() -> None:
    """StreamsPartitionAssignorTest.testUniqueFieldOverflow: it is a signed byte."""
    sent = [replace(FULL, unique_field=number).to_subscription().unique_field for number in (127, 128, 256)]
    assert sent == [127, -128, 0]


def test_what_is_too_long_to_travel_is_left_out_by_what_it_is_worth() -> None:
    """What runs and the active tasks stay longest; what was left out is told."""
    disk, active = (
        {TaskId(number, part): offset for part in range(200)}
        for number, offset in ((1, UNKNOWN_OFFSET_SUM), (2, LATEST_OFFSET))
    )
    standby = {TaskId(3, part): 5 for part in range(200)}
    serdes = {f"store{number}": ("k" * 50, "v" * 50) for number in range(100)}
    whole = replace(
        FULL, tasks=disk | active | standby, serdes=serdes, up_to_date=frozenset(active | standby)
    )
    size = len(whole.to_subscription().encode())
    assert fitting(whole, size) == (whole.to_subscription().encode(), ())
    seen = []
    for most in range(size, 1500, -500):
        data, left_out = fitting(whole, most)
        assert len(data) <= most
        said = read(SubscriptionInfo.decode(data))
        assert said.running == FULL.running
        assert set(said.tasks) >= set(active) or "active tasks" in left_out
        if left_out not in seen:
            seen.append(left_out)
    assert seen[-1] == ("state on disk", "the program", "serdes", "standbys", "active tasks")
    assert all(later[: len(sooner)] == sooner for sooner, later in pairwise(seen))
    with pytest.raises(TaskAssignmentException, match="200; give the client"):
        fitting(whole, 200)


def test_of_a_long_reason_the_beginning_travels() -> None:
    """A traceback of a megabyte must not fail the request that carries it."""
    assert read(replace(FULL, reason="x" * 5000).to_subscription()).reason == "x" * 2000
    assert Assignment.decode(Assignment(reason="x" * 5000).encode()).reason == "x" * 2000


def test_a_member_of_a_newer_version_is_only_known_to_be_one() -> None:
    """Version probing."""
    info = MemberInfo.from_subscription(SubscriptionInfo.decode(b"\0\0\0\x0c\0\0\0\x0c"))
    assert info.is_future
    assert (info.threads, info.running) == (0, frozenset())
    assert not FULL.is_future


def test_a_member_that_is_no_millstream_client_has_no_capacity() -> None:
    """It could do nothing with work; but its request to shut down counts."""
    info = read(SubscriptionInfo(error_code=4, client_tags={"zone": "eu"}))
    assert (info.threads, info.client_id, info.program) == (0, "", None)
    assert info.error_code is AssignorError.SHUTDOWN_REQUESTED


def test_a_subscriptions_code_that_we_do_not_know_is_none() -> None:
    """Upstream looks for SHUTDOWN_REQUESTED only."""
    assert read(SubscriptionInfo(error_code=77)).error_code is AssignorError.NONE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", "many"),
        ("threads", "-1"),
        ("threads", "10001"),
        ("threads", "9" * 100),
        ("threads", ""),
        ("running", "0_0"),
        ("running", "[]"),
        ("running", '{"0": 0}'),
        ("running", "[" * 100_000),
        ("running", r'{"\ud800": [0]}'),
        ("stopping", "null"),
        ("up_to_date", "[]"),
        ("up_to_date", '{"1": [-1]}'),
        ("serdes", '{"s": "k"}'),
        ("serdes", '{"s": ["k"]}'),
        ("serdes", '{"s": ["k", 1]}'),
        ("work", "[]"),
        ("work", '{"stateful": "0_0"}'),
        ("work", '{"tasks": {"a": [1]}}'),
        ("work", '{"tasks": {"1": [-1]}}'),
        ("work", '{"tasks": {"1": [true]}}'),
        ("work", '{"tasks": {"1": 5}}'),
        ("work", '{"standby_replicas": 1.5}'),
        ("work", '{"standby_replicas": ' + "9" * 10_000 + "}"),
    ],
)
def test_a_tag_with_a_wrong_value_is_refused(name: str, value: str) -> None:
    """Each is read with distrust, and the error names it."""
    with pytest.raises(TaskAssignmentException, match=rf"^Corrupted user data .* '{name}' should be"):
        read(with_tag(name, value))


def test_a_tag_that_we_do_not_know_is_left_alone() -> None:
    """A later version may say more."""
    assert read(with_tag("colour", "{")) == FULL


def test_task_numbers_are_not_negative() -> None:
    """TaskId prints and parses only such."""
    with pytest.raises(TaskAssignmentException, match="non-negative"):
        read(SubscriptionInfo(task_offset_sums={TaskId(-1, 0): 5}))
    with pytest.raises(TaskAssignmentException, match="non-negative"):
        Assignment.decode(AssignmentInfo(active_tasks=(TaskId(0, -1),), error_code=3).encode())


def test_an_assignment_comes_back() -> None:
    """Every field travels, and an ordinary empty one too."""
    assert Assignment.decode(TOLD.encode()) == TOLD
    assert Assignment.decode(Assignment().encode()) == Assignment()


def test_kafkas_part_of_an_assignment_is_true() -> None:
    """Whoever reads only that sees tasks and the code."""
    info = AssignmentInfo.decode(TOLD.encode())
    assert info.active_tasks == TOLD.active
    assert set(info.standby_tasks) == set(TOLD.standby)
    assert info.error_code == AssignorError.SHUTDOWN_REQUESTED


def test_an_error_needs_no_trailer() -> None:
    """What upstream's leader would answer is understood; work without our part is not."""
    assert Assignment.decode(AssignmentInfo(error_code=4).encode()).error_code == 4
    with pytest.raises(TaskAssignmentException, match="Failed to decode"):
        Assignment.decode(AssignmentInfo(active_tasks=(TaskId(0, 0),)).encode())


def test_a_code_that_we_do_not_know_is_kept_for_the_client_to_refuse() -> None:
    """StreamsRebalanceListener: "Hit an unrecognized exception during rebalance"."""
    assert Assignment.decode(AssignmentInfo(error_code=77).encode()).error_code == 77


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"withheld": [1]}',
        b'{"withheld": {"0": ["0"]}}',
        b'{"leader": 1}',
        b'{"reason": "\\udc00"}',
        b'{"hosts": []}',
        b'{"hosts": {"h:1": [{}]}}',
        b'{"hosts": {"h:1": [{}, {"1": ["x"]}]}}',
        b'{"members": {"a": [{}, {}]}}',
        b'{"members": []}',
        b'{"serdes": {"s": [1, 2]}}',
        b'{"rebalance_wanted": 1}',
        b'{"warming": ["1_0"]}',
        b'{"warming": {"1": 0}}',
    ],
)
def test_a_trailer_with_a_wrong_value_is_refused(text: bytes) -> None:
    """Field by field."""
    with pytest.raises(TaskAssignmentException, match="Corrupted user data"):
        Assignment.decode(with_trailer(text))


def test_a_trailer_has_its_name_its_length_and_nothing_behind() -> None:
    """What follows Kafka's fields is ours or it is refused; and none is read that is too long."""
    good = with_trailer(b"{}")
    assert Assignment.decode(good) == Assignment()
    with pytest.raises(TaskAssignmentException, match="is not Millstream's"):
        Assignment.decode(good.replace(b"mill", b"mold"))
    with pytest.raises(TaskAssignmentException, match="1 bytes follow its trailer"):
        Assignment.decode(good + b"!")
    with pytest.raises(TaskAssignmentException, match="longer than"):
        Assignment.decode(with_trailer(b" " * (MOST_TRAILER_BYTES + 1)))
    with pytest.raises(TaskAssignmentException, match="the limit is"):
        Assignment(serdes={"s": ("x" * MOST_TRAILER_BYTES, "")}).encode()


def only_says_no(data: bytes) -> None:
    """Any other exception fails the test."""
    with suppress(TaskAssignmentException):
        MemberInfo.from_subscription(SubscriptionInfo.decode(data))
    with suppress(TaskAssignmentException):
        Assignment.decode(data)


@given(
    st.sampled_from([FULL.to_subscription().encode(), TOLD.encode()]),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 10_000),
)
def test_damaged_bytes_are_read_or_refused(data: bytes, changes: list[tuple[int, int]], end: int) -> None:
    """Valid ones with some bytes changed and the end cut off."""
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(data)] = value
    only_says_no(bytes(damaged))
    only_says_no(bytes(damaged[: end % len(data)]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["leader", "reason", "asked_by", "missing_topics", "withheld", "hosts", "members", "serdes"]


@given(st.dictionaries(st.sampled_from([*FIELDS, "rebalance_wanted", "warming"]), JSON, max_size=4))
def test_any_json_is_read_or_refused(said: dict[str, object]) -> None:
    """Every field gets values of every type."""
    only_says_no(with_trailer(json.dumps(said).encode()))


@given(st.sampled_from(["running", "stopping", "up_to_date", "serdes", "work"]), JSON)
def test_any_json_in_a_tag_is_read_or_refused(name: str, value: object) -> None:
    """Every tag gets values of every type."""
    only_says_no(with_tag(name, json.dumps(value)).encode())
