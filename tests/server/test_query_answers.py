"""What exceptions become over HTTP, and what comes out of it again."""

from __future__ import annotations

import json

import pytest

from millstream import errors
from millstream.errors import (
    IllegalStateException,
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    ProcessorStateException,
    SerializationException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    TaskMigratedException,
    TimeoutException,
    UnknownStateStoreException,
)
from millstream.remote.answers import ERRORS, Answer, Refused, answer_to, exception_from, is_misdirected

STATUS = [
    (StreamsNotStartedException, 503, True),
    (StreamsRebalancingException, 503, True),
    (StateStoreNotAvailableException, 503, False),
    (StateStoreMigratedException, 421, False),
    (InvalidStateStorePartitionException, 421, False),
    (UnknownStateStoreException, 404, False),
    (InvalidStateStoreTypeException, 409, False),
    (TimeoutException, 504, True),
    (IllegalStateException, 503, True),
    (SerializationException, 500, False),
    (ProcessorStateException, 500, False),
]


@pytest.mark.parametrize(
    ("kind", "status", "retriable"), STATUS, ids=lambda each: getattr(each, "__name__", "")
)
def test_each_exception_has_its_status_and_comes_out_again(
    kind: type[Exception], status: int, retriable: bool
) -> None:
    """Class, message and store survive the network; Retry-After stands where a retry can help."""
    error = (
        kind("what happened", store="counts")
        if issubclass(kind, InvalidStateStoreException)
        else kind("what happened")
    )
    answer = answer_to(error, client_id="c0", client_state="RUNNING", host="other:8080")
    assert (answer.status, answer.body["retriable"]) == (status, retriable)
    assert ("retry-after" in answer.headers) is retriable
    assert answer.body["client_state"] == "RUNNING"
    assert answer.body["host"] == "other:8080"
    again = exception_from(answer.status, json.loads(answer.encoded().raw or b""), "http://h:1")
    assert type(again) is kind
    assert str(again) == "what happened"
    assert getattr(again, "store", None) == getattr(error, "store", None)


def test_the_table_has_each_leaf_of_kip_216_and_says_the_same_of_retrying() -> None:
    """A leaf that is added has to get a row, and `retriable` is the leaf's own."""
    leaves = InvalidStateStoreException.__subclasses__()
    assert len(leaves) == 7
    assert [leaf for leaf in leaves if leaf not in ERRORS] == []
    assert [leaf for leaf in leaves if ERRORS[leaf].retriable is not leaf.retriable] == []
    assert {kind for kind, _, _ in STATUS} == set(ERRORS)


def test_an_exception_of_ours_without_a_row_is_a_streams_exception() -> None:
    """The other side need not know all classes."""
    answer = answer_to(TaskMigratedException("gone"))
    assert (answer.status, answer.body["error"], answer.body["message"]) == (500, "StreamsException", "gone")
    assert type(exception_from(500, answer.body, "s")) is StreamsException


def test_an_exception_of_others_keeps_its_text_to_itself() -> None:
    """It might be what a record says."""
    answer = answer_to(KeyError("4711-secret"))
    assert answer.status == 500
    assert b"secret" not in (answer.encoded().raw or b"")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"error": "StreamsException"},
        {"error": "ApplicationShutdownException", "message": "now"},
        {"error": "os.system", "message": "ls"},
        {"error": ["StreamsRebalancingException"]},
        {"error": {"a": 1}, "message": 7},
        {"error": "Busy", "message": None},
    ],
    ids=str,
)
def test_a_body_that_names_no_row_becomes_a_streams_exception(body: dict[str, object]) -> None:
    """A class is only taken from the table, whatever stands in the answer."""
    error = exception_from(500, body, "http://h:1")
    assert type(error) is StreamsException
    assert "http://h:1" in str(error)


@pytest.mark.parametrize("store", [7, None, ["a"], {"b": 1}])
def test_facts_of_another_type_are_left_out(store: object) -> None:
    """What comes over the network is only taken if it is of the type that it has to be."""
    body = {"error": "UnknownStateStoreException", "message": "m", "store": store, "partition": "x"}
    error = exception_from(404, body, "s")
    assert isinstance(error, UnknownStateStoreException)
    assert error.store == ""


def test_a_refused_request_is_no_exception_of_stores() -> None:
    """Words of HTTP; the connection ends where the rest of the request cannot be believed."""
    answer = answer_to(Refused(413, "TooLarge", "less, please", close=True))
    assert answer == Answer(
        413, {"error": "TooLarge", "retriable": False, "message": "less, please"}, {"connection": "close"}
    )


def test_only_an_error_is_misdirected() -> None:
    """421 of something else in between is not taken for an answer."""
    assert is_misdirected(421, {"error": "StateStoreMigratedException"})
    assert not is_misdirected(421, {})
    assert not is_misdirected(503, {"error": "StreamsRebalancingException"})


def test_every_row_is_for_a_class_of_ours() -> None:
    """The table names nothing that `millstream.errors` does not have."""
    assert {kind.__name__ for kind in ERRORS} <= set(errors.__all__)
