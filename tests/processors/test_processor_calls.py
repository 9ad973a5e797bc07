"""Each call of the Processor API returns what it returns in Kafka Streams 4.3.1
(tests/snapshots/calls.py)."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from processors.homes import MemoryHome, plan_of, raw, task_of
from snapshots.calls import FILE, asked

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Produced
from millstream.dsl.store_builders import StoreBuilder
from millstream.dsl.store_suppliers import Stores
from millstream.model import KeyValue, SessionWindow, ValueAndTimestamp, Windowed
from millstream.processors.api import FixedKeyProcessor, FixedKeyRecord, Processor, PunctuationType, Record
from millstream.processors.stores import StoreIterator
from millstream.query.result import VersionedRecord
from millstream.serdes.serdes import Serdes


@cache
def written() -> dict[str, dict[str, Any]]:
    return {case["name"]: case for case in map(json.loads, FILE.read_text("utf-8").splitlines())}


def test_the_file_has_the_cases_that_are_written_here() -> None:
    """Whoever changes a case has Kafka Streams answer anew."""
    answered = [json.dumps({k: v for k, v in case.items() if k != "steps"}) for case in written().values()]
    assert answered == [json.dumps(json.loads(line)) for line in asked()]


@pytest.mark.parametrize("name", written())
def test_calls_return_what_they_return_in_kafka_streams(name: str) -> None:
    """Stores, forward, punctuation, metadata; and what goes out, and into changelogs."""
    case = written()[name]
    for number, (ours, theirs) in enumerate(zip(Play(case).steps(), case["steps"], strict=True)):
        assert comparable(case, ours) == comparable(case, theirs), f"{name}, step {number}"


def comparable(case: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """A step without what Kafka Streams' stores leave to chance, or tell less of.

    Windows of several keys have an order of their own here, and so have sessions that end together in
    memory there. A version that is not put is in the changelog there, and not here; up to when another one
    was valid is told here.
    """
    kinds = {store["kind"] for store in case["stores"]}
    rows = []
    for who, what, result in step.get("log", ()):
        if isinstance(result, list) and result and all(isinstance(row, list) for row in result):
            keys = {row[0][0] for row in result if isinstance(row[0], list)}
            if kinds == {"session"} or len(keys) > 1:
                result = sorted(result)
        if kinds == {"versioned"} and isinstance(result, list):
            result = result[:2]
        rows.append([who, what, result])
    left = {name: step[name] for name in step if not (name == "changelogs" and kinds == {"versioned"})}
    return {**left, "log": rows}


class Play:
    """A case, played with millstream/processors."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.log: list[list[Any]] = []
        self.scheduled: dict[str, Any] = {}
        self.kinds = {store["name"]: store["kind"] for store in case["stores"]}
        self.plan = plan_of(self.topology())
        self.home = MemoryHome(goes_on=case.get("continue", False))
        self.task = task_of(self.plan, self.home)

    def topology(self) -> Any:
        builder = StreamsBuilder()
        for store in self.case["stores"]:
            builder.add_state_store(store_builder(store))
        strings = (Serdes.string(), Serdes.string())
        streams = {"source": builder.stream("in", Consumed.with_(*strings).with_name("source"))}
        for each in self.case["processors"]:
            parent, name, stores = streams[each["parent"]], each["name"], each.get("stores", ())
            if each.get("fixed"):
                streams[name] = parent.process_values(
                    lambda name=name: Fixed(self, name), *stores, named=name
                )
            else:
                streams[name] = parent.process(lambda name=name: Free(self, name), *stores, named=name)
        for each in self.case["sinks"]:
            streams[each["parent"]].to(each["name"], Produced.with_(*strings).with_name(each["name"]))
        return builder.build()

    def steps(self) -> Any:
        self.task.init()
        yield self.step(None)
        for offset, (key, value, *more) in enumerate(self.records()):
            error = None
            try:
                if key == "advance" and not more:
                    self.home.now += value
                    self.task.advance_wall_clock(self.home.now)
                else:
                    text = (
                        value
                        if value is None or isinstance(value, str)
                        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                    )
                    headers = tuple((name, data.encode()) for name, data in (more[1:] or [()])[0])
                    self.task.process(0, raw(key, text, more[0], headers, offset=offset))
            except Exception as raised:
                error = type(raised).__name__
            yield self.step(error)
            if error is not None:
                return

    def records(self) -> Any:
        """Offsets count records alone."""
        return self.case["records"]

    def step(self, error: str | None) -> dict[str, Any]:
        step: dict[str, Any] = {}
        if self.log:
            step["log"] = json.loads(json.dumps(self.log))
        if error is not None:
            return {**step, "error": error}
        names = [spec.name for spec in self.plan.graph.outside]
        out = [
            [
                names[number],
                *(None if data is None else data.decode() for data in (record.key, record.value)),
                record.timestamp,
                [[name, value.decode()] for name, value in record.headers],
            ]
            for sink in self.case["sinks"]
            for number, record in self.home.left
            if names[number] == sink["name"]
        ]
        if out:
            step["out"] = out
        changes: dict[str, list[Any]] = {}
        for number, key, value, timestamp in self.home.changes:
            row = [key.hex(), None if value is None else value.hex(), timestamp]
            changes.setdefault(self.plan.graph.stores[number].name, []).append(row)
        if changes:
            step["changelogs"] = changes
        self.log.clear()
        self.home.left.clear()
        self.home.changes.clear()
        return step


def store_builder(store: dict[str, Any]) -> StoreBuilder:
    name, kind = store["name"], store["kind"]
    memory, duplicates = store.get("memory", False), store.get("duplicates", False)
    retention, window, history = (
        timedelta(milliseconds=store.get(what, 0)) for what in ("retention", "window", "history")
    )
    strings = (Serdes.string(), Serdes.string())
    if kind == "versioned":
        supplier = Stores.persistent_versioned_key_value_store(name, history)
        built = Stores.versioned_key_value_store_builder(supplier, *strings)
    elif kind == "session":
        made = Stores.in_memory_session_store if memory else Stores.persistent_session_store
        built = Stores.session_store_builder(made(name, retention), *strings)
    elif kind in ("window", "timestamped-window"):
        of_windows = Stores.in_memory_window_store if memory else Stores.persistent_window_store
        supplier = of_windows(name, retention, window, duplicates)
        timed = kind != "window"
        build = Stores.timestamped_window_store_builder if timed else Stores.window_store_builder
        built = build(supplier, *strings)
    else:
        of_keys = Stores.in_memory_key_value_store if memory else Stores.persistent_key_value_store
        timed = kind == "timestamped"
        make = Stores.timestamped_key_value_store_builder if timed else Stores.key_value_store_builder
        built = make(of_keys(name), *strings)
    return built if store.get("logged", True) else built.with_logging_disabled()


class Player:
    """What both kinds of processors do here."""

    def __init__(self, play: Play, name: str) -> None:
        self.of = play
        self.name = name

    def init(self, context: Any) -> None:
        self.context = context
        self.play(None, self.of.case.get("init", {}).get(self.name, []))

    def process(self, record: Any) -> None:
        self.now = record
        try:
            script = {} if record.value is None else json.loads(record.value)
        except ValueError:
            script = {}
        self.play(record, script.get(self.name, []))

    def play(self, record: Any, script: list[list[Any]]) -> None:
        for call in script:
            try:
                result = self.made(record, call)
            except Exception as error:
                if call[0] == "raise":
                    raise
                result = {"error": JAVA.get(type(error).__name__, type(error).__name__)}
            self.of.log.append([self.name, call[0], result])

    def made(self, record: Any, call: list[Any]) -> Any:
        context = self.context
        match call[0], *call[1:]:
            case "forward", key, value, timestamp, child, *headers:
                at = record.timestamp if timestamp is None else timestamp
                told = tuple((name, text.encode()) for name, text in (headers or [[]])[0])
                context.forward(self.record(key, value, at, told), child)
            case "pass", child:
                context.forward(record, child)
            case ["pass"]:
                context.forward(record)
            case ["record"]:
                return [record.key, record.timestamp, [[k, v.decode()] for k, v in record.headers]]
            case ["metadata"]:
                at = context.record_metadata
                return None if at is None else [at.topic, at.partition, at.offset]
            case ["stream_time"]:
                return context.current_stream_time_ms()
            case ["system_time"]:
                return context.current_system_time_ms()
            case ["task"]:
                return str(context.task_id)
            case "schedule", name, type, interval, script, *start:

                def punctuate(now: int) -> None:
                    self.of.log.append([self.name, f"punctuate {name}", now])
                    self.play(None, script)

                self.of.scheduled[name] = context.schedule(
                    timedelta(milliseconds=interval),
                    PunctuationType[type],
                    punctuate,
                    start_time=start[0] if start else None,
                )
            case "cancel", name:
                self.of.scheduled[name].cancel()
            case ["raise"]:
                raise IllegalStateException("told to")
            case method, store, *arguments:
                return self.stored(context.get_state_store(store), self.of.kinds[store], method, arguments)
        return None

    def stored(self, store: Any, kind: str, method: str, arguments: list[Any]) -> Any:
        timed = kind.startswith("timestamped")
        if method in ("put", "put_if_absent") and timed and arguments[1] is not None:
            arguments = [arguments[0], ValueAndTimestamp(*arguments[1]), *arguments[2:]]
        if method == "put_all" and timed:
            arguments = [[(key, value and ValueAndTimestamp(*value)) for key, value in arguments[0]]]
        if kind == "session" and method in ("put", "remove"):
            key, start, end, *value = arguments
            arguments = [Windowed(key, SessionWindow(start, end)), *value]
        if method == "prefix_scan":
            arguments = [arguments[0], Serdes.string()]
        result = getattr(store, method)(*arguments)
        return (
            [list(map(told, entry)) for entry in result]
            if isinstance(result, StoreIterator)
            else told(result)
        )


def told(value: Any) -> Any:
    if isinstance(value, VersionedRecord):
        return [value.value, value.timestamp, value.valid_to]
    if isinstance(value, Windowed):
        return [value.key, value.window.start_ms, value.window.end_ms]
    if isinstance(value, ValueAndTimestamp | KeyValue):
        return list(value)
    return value


JAVA = {"ValueError": "NullPointerException", "IllegalStateException": "FailedProcessingException"}
"""Exceptions that have another name here."""


class IllegalStateException(Exception):
    """As it is called there."""


class Free(Player, Processor):
    def record(self, key: Any, value: Any, timestamp: int, headers: Any) -> Record:
        return Record(key, value, timestamp, headers)

    def close(self) -> None:
        self.of.log.append([self.name, "close", None])


class Fixed(Player, FixedKeyProcessor):
    def record(self, key: Any, value: Any, timestamp: int, headers: Any) -> FixedKeyRecord:
        return FixedKeyRecord(self.now.key, value, timestamp, headers)
