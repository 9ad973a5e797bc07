"""A client that tests start as a process of its own, described by a JSON text: its topology, its handler,
its configuration.

It says on its standard output, a JSON object a line, what happens to it (`event`), and answers what it reads
from its standard input (`answer`); its log goes to the standard error output. See `cluster_world.py` for the
other side. Its own records: `key` None, the value is what is counted.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.functions import concat_ws, substring_index, udf, upper
from pyspark.sql.types import StringType
from readers import STORES, Readers

from millstream import (
    BufferConfig,
    Consumed,
    FailureContext,
    Grouped,
    JoinWindows,
    KafkaStreams,
    KStream,
    KTable,
    LostTopicException,
    Materialized,
    MissingSourceTopicException,
    Produced,
    QueryableStoreTypes,
    Serdes,
    SessionWindows,
    StoreQueryParameters,
    Stores,
    StreamsBuilder,
    StreamsException,
    StreamThreadExceptionResponse,
    Suppressed,
    TimeWindows,
    Topology,
    UncaughtExceptionPolicy,
    Windowed,
)
from millstream.clock import SystemClock
from millstream.polling import looks
from millstream.processors.api import Processor, ProcessorContext, Record
from millstream.runtime.wiring import real_parts

Response = StreamThreadExceptionResponse
_TEXTS = Consumed.with_(Serdes.string(), Serdes.string())
_NUMBER = Produced.with_(Serdes.string(), Serdes.long())
_saying = threading.Lock()
_readers: list[Readers] = []


def say(**what: Any) -> None:
    """One line of output; `at` is the time of day, which all processes of a machine share."""
    with _saying:
        print(json.dumps({"at": time.time(), **what}), flush=True)


# --- the topology ------------------------------------------------------------------------------------------


def poisoned(flag: str, poison: str = "poison") -> Callable[[Any], Any]:
    """A Python function that raises at `poison`: as often as the file `flag` has bytes, which it takes away
    one by one; for ever where the file begins with '*'."""

    def check(value: str) -> str:
        path = Path(flag)
        if value == poison and path.exists() and (left := path.read_bytes()):
            if not left.startswith(b"*"):
                path.write_bytes(left[1:])
            raise ValueError("a poisonous record")
        return value

    return udf(check, StringType())


def build(spec: dict[str, Any]) -> Topology:
    """`source` (a topic, or several), or `pattern`; a count of the values in the store `counts`; `output` has
    its updates. `windows` counts them by windows and by sessions as well. `poison` names the file of
    `poisoned`; `table` a topic for a global table."""
    if "proof" in spec:
        return build_proof(spec)
    builder = StreamsBuilder()
    source = re.compile(spec["pattern"]) if "pattern" in spec else spec["source"]
    stream = builder.stream(source, _TEXTS)
    if "table" in spec:
        builder.global_table(spec["table"], _TEXTS, Materialized.as_("table"))
    if "poison" in spec:
        check = poisoned(spec["poison"])
        stream = stream.map_values(lambda value: check(value))
    grouped = stream.group_by(lambda key, value: value)
    counts = grouped.count(Materialized.as_(spec.get("store", "counts")))
    if spec.get("windows"):
        tumbling = TimeWindows.of_size_and_grace(timedelta(seconds=5), timedelta(hours=1))
        grouped.windowed_by(tumbling).count(Materialized.as_("windows"))
        sessions = SessionWindows.of_inactivity_gap_and_grace(timedelta(milliseconds=200), timedelta(hours=1))
        grouped.windowed_by(sessions).count(Materialized.as_("sessions"))
    if "output" in spec:
        counts.to_stream().to(spec["output"], Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


def build_proof(spec: dict[str, Any]) -> Topology:
    """What shows that each record counts once: each of proof.py's programs that `proof` has an output for.
    The key of a record is its number and its value, `17-w3`. `rows` and `everywhere` are the topics of the
    tables that are joined, which have a row for each value; `poison` is as for `build`.
    """
    outputs: dict[str, str] = spec["proof"]
    builder = StreamsBuilder()
    stream = builder.stream(spec["source"], _TEXTS)
    if "poison" in spec:
        check = poisoned(spec["poison"])
        stream = stream.map_values(lambda value: check(value))
    _count_each_way(stream, outputs)
    if "rows" in spec:
        _join_each_way(builder, stream, spec["rows"], spec["everywhere"], outputs)
    if "processed" in outputs:
        _process(stream, outputs["processed"])
    return builder.build()


def _count_each_way(stream: KStream[str, str], outputs: dict[str, str]) -> None:
    """`map` has each record; `count` the updates of a count by value (store `counts`); `windows` and
    `sessions` those of one by value and window; `final` the counts of windows that have closed; `chain`
    those of a count by value of the updates of a count by key, which is another pipeline, behind a topic.
    """
    if "map" in outputs:
        stream.map_values(lambda value: upper(value)).to(outputs["map"])
    by_value = stream.group_by(lambda key, value: value)
    if "count" in outputs:
        by_value.count(Materialized.as_("counts")).to_stream().to(outputs["count"], _NUMBER)
    windows: dict[str, Callable[[], KTable[Windowed[str], int]]] = {
        "windows": lambda: by_value.windowed_by(
            TimeWindows.of_size_and_grace(timedelta(seconds=5), timedelta(hours=1))
        ).count(Materialized.as_("windows")),
        "sessions": lambda: by_value.windowed_by(
            SessionWindows.of_inactivity_gap_and_grace(timedelta(milliseconds=200), timedelta(hours=1))
        ).count(Materialized.as_("sessions")),
        "final": lambda: (
            by_value.windowed_by(TimeWindows.of_size_and_grace(timedelta(seconds=5), timedelta(seconds=2)))
            .count()
            .suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
        ),
    }
    for name, counted in windows.items():
        if name in outputs:
            text = (
                counted()
                .to_stream()
                .select_key(lambda key, value: concat_ws("@", key.key, key.window.start.cast("string")))
            )
            text.to(outputs[name], _NUMBER)
    if "chain" in outputs:
        each = stream.group_by_key().count(Materialized.as_("each")).to_stream()
        again = each.group_by(
            lambda key, value: substring_index(key, "-", -1), Grouped.with_(Serdes.string(), Serdes.long())
        )
        again.count(Materialized.as_("chained")).to_stream().to(outputs["chain"], _NUMBER)


def _join_each_way(
    builder: StreamsBuilder, stream: KStream[str, str], rows: str, everywhere: str, outputs: dict[str, str]
) -> None:
    """`table`: by its value with the row that a table has for that, and a count behind it (store `matched`);
    `global`: likewise, with a global table; `stream`: with itself, by its key; `tables`: the table of records
    with a count by key; `foreign`: that table by a foreign key, its value; `grouped`: the updates of how many
    rows of the table have a value.
    """
    table = builder.table(rows, _TEXTS, Materialized.as_("rows"))
    if "table" in outputs:
        by_value = stream.map(lambda key, value: (value, key))
        joined = by_value.join(table, lambda key, row: concat_ws(" ", key, row))
        joined.to(outputs["table"])
        joined.group_by_key().count(Materialized.as_("matched"))
    if "global" in outputs:
        global_table = builder.global_table(everywhere, _TEXTS)
        found = stream.join(
            global_table, lambda key, value: value, lambda value, row: concat_ws(" ", value, row)
        )
        found.to(outputs["global"])
    if "stream" in outputs:
        within = JoinWindows.of_time_difference_and_grace(timedelta(hours=1), timedelta(hours=1))
        stream.join(stream, lambda one, other: concat_ws(" ", one, other), within).to(outputs["stream"])
    if not outputs.keys() & {"tables", "foreign", "grouped"}:
        return
    records = stream.to_table()
    if "tables" in outputs:
        counted = records.join(
            stream.group_by_key().count(), lambda value, count: concat_ws(" ", value, count)
        )
        counted.to_stream().to(outputs["tables"])
    if "foreign" in outputs:
        named = records.join(table, lambda value: value, lambda value, row: concat_ws(" ", value, row))
        named.to_stream().to(outputs["foreign"])
    if "grouped" in outputs:
        grouped = records.group_by(lambda key, value: (value, key)).count()
        grouped.to_stream().to(outputs["grouped"], _NUMBER)


class Count(Processor):
    """Forwards each record with its place among those of its value in its partition."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts = context.get_state_store("places")

    def process(self, record: Record) -> None:
        count = (self.counts.get(record.value) or 0) + 1
        self.counts.put(record.value, count)
        self.context.forward(record.with_value(f"{record.value} {count}"))


class Recent(Processor):
    """Forwards each record with how many there are of its value in all windows."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.recent = context.get_state_store("recent")

    def process(self, record: Record) -> None:
        word, place = record.value.split()
        self.recent.put(word, record.key, int(place))  # each in a window of its own
        with self.recent.fetch(word, 0, 3_600_000) as found:
            count = sum(1 for _ in found)
        self.context.forward(record.with_value(f"{record.value} {count}"))


def _process(stream: KStream[str, str], output: str) -> None:
    """Each record, with what two processors make of it, one behind the other, each with a store."""
    text = Serdes.string()
    places = Stores.key_value_store_builder(Stores.persistent_key_value_store("places"), text, Serdes.long())
    hours = timedelta(hours=2)
    recent = Stores.window_store_builder(
        Stores.persistent_window_store("recent", hours, timedelta(milliseconds=1)), text, text
    )
    stream.process(Count, places).process(Recent, recent).to(output)


# --- the handler -------------------------------------------------------------------------------------------


def handler(answer: str) -> Callable[[StreamsException, FailureContext], Any]:
    """Tells what it was called with, and answers: a response's name, 'raises', 'none', or 'patient'."""
    patient = UncaughtExceptionPolicy.replace(
        max_failures=100, backoff=timedelta(milliseconds=200), backoff_max=timedelta(seconds=1)
    )

    def handle(error: StreamsException, context: FailureContext) -> Any:
        topics = (
            sorted(error.topics)
            if isinstance(error, MissingSourceTopicException | LostTopicException)
            else []
        )
        say(
            event="handler",
            thread=context.thread,
            error=type(error).__name__,
            text=str(error),
            cause=type(error.__cause__).__name__,
            topics=topics,
            pipeline=context.pipeline,
            attempt=context.attempt,
            offsets={str(where): list(span) for where, span in (context.offsets or {}).items()},
        )
        match answer:
            case "raises":
                raise RuntimeError("the handler itself")
            case "none":
                return None
            case "patient":
                return patient
            case _:
                return Response[answer]

    return handle


# --- what it is asked --------------------------------------------------------------------------------------


def parameters_of(store: str, *, stale: bool = False) -> StoreQueryParameters[Any]:
    parameters = StoreQueryParameters.from_name_and_type(store, QueryableStoreTypes.key_value_store())
    return parameters.enable_stale_stores() if stale else parameters


def counts_of(client: KafkaStreams, store: str, *, stale: bool = False) -> dict[str, int]:
    view = client.store(parameters_of(store, stale=stale))
    with view.all() as entries:
        return dict(entries)


def windowed_counts_of(client: KafkaStreams, store: str) -> dict[str, int]:
    """How often each value was counted in all windows, or in all sessions."""
    view: Any = client.store(STORES[store].parameters)
    counted: dict[str, int] = {}
    with view.all() as entries:
        for where, count in entries:
            counted[where.key] = counted.get(where.key, 0) + count
    return counted


def watch(client: KafkaStreams, store: str, keys: list[str], timeout_s: float = 120.0) -> None:
    """Say when all of the keys can be read here, and not stale: `event` is "readable"."""

    def look() -> None:
        for _ in looks(timeout_s, every_s=0.002):
            try:
                view = client.store(parameters_of(store))
                if None not in view.multi_get(keys):
                    say(event="readable", keys=len(keys))
                    return
            except StreamsException:
                continue  # not yet

    threading.Thread(target=look, name="watch", daemon=True).start()


def status_of_a_child() -> int:
    """How a forked child ends that does nothing but end, as Python does it."""
    child = os.fork()
    if not child:
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def answer_to(client: KafkaStreams, spec: dict[str, Any], question: list[Any]) -> Any:
    match question:
        case ["counts"]:
            return counts_of(client, spec.get("store", "counts"))
        case ["windowed counts", str(store)]:
            return windowed_counts_of(client, store)
        case ["stale"]:
            return counts_of(client, spec.get("store", "counts"), stale=True)
        case ["watch", *keys]:
            watch(client, spec.get("store", "counts"), keys)
        case ["lags"]:
            return {
                str(partition): lag.offset_lag
                for lags in client.all_local_store_partition_lags().values()
                for partition, lag in lags.items()
            }
        case ["owner", str(key)]:
            found = client.query_metadata_for_key(spec.get("store", "counts"), key)
            return [str(found.active_host), sorted(map(str, found.standby_hosts)), found.partition]
        case ["hosts"]:
            return {
                str(each.host_info): [len(each.topic_partitions), len(each.standby_topic_partitions)]
                for each in client.metadata_for_all_streams_clients()
            }
        case ["state"]:
            return client.state.name
        case ["start"]:
            client.start()
        case ["wait"]:
            return client.wait().name
        case ["fork"]:
            return status_of_a_child()
        case ["close"]:
            return client.close(timedelta(seconds=60))
        case ["add"]:
            return client.add_stream_thread()
        case ["remove"]:
            return client.remove_stream_thread(timedelta(seconds=30))
        case ["handler", str(name)]:
            client.set_uncaught_exception_handler(handler(name))
        case ["read", list(keys), int(threads)]:
            stores = tuple(STORES) if spec.get("windows") else ("counts",)
            _readers.append(Readers(client, keys, threads, stores))
        case ["stop reading"]:
            return _readers.pop().stop()
        case ["failures"]:
            return [[record.thread, str(record.response), record.attempt] for record in client.failures]
        case ["health"]:
            return client.health.as_dict()
        case ["threads"]:
            return [
                {
                    "name": thread.thread_name,
                    "state": thread.thread_state,
                    "tasks": [str(task.task_id) for task in thread.active_tasks],
                    "standbys": [str(task.task_id) for task in thread.standby_tasks],
                    "pipelines": [each.name for each in thread.pipelines],
                    "running": [each.name for each in thread.pipelines if each.running],
                }
                for thread in client.metadata_for_local_threads()
            ]
        case _:
            raise ValueError(f"no such question: {question}")
    return None


class ShiftedClock(SystemClock):
    """The machine's clock, as it is where the time of day is wrong."""

    def __init__(self, off_s: float) -> None:
        self._off_ms = int(off_s * 1000)

    def epoch_ms(self) -> int:
        return super().epoch_ms() + self._off_ms


def answer_questions(client: KafkaStreams, spec: dict[str, Any]) -> None:
    """Until the input ends, or the client is to end; then it is closed."""
    for line in sys.stdin:
        if (question := json.loads(line)) == ["end"]:
            break
        try:
            found = answer_to(client, spec, question)
        except Exception as error:
            say(answer=None, raised=type(error).__name__, text=str(error))
        else:
            say(answer=found)
    client.close(timedelta(seconds=60))


def tell_where_it_is(*_: Any) -> None:
    """At SIGUSR1, into the log: where each thread is, the innermost call first; a line for each."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        calls = traceback.extract_stack(frame)[-12:]
        where = (f"{call.name} ({Path(call.filename).name}:{call.lineno})" for call in reversed(calls))
        print(f"@ {names.get(ident, ident)}: {' < '.join(where)}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> None:
    """Run the client that the argument describes; or one after the other as they come from the input."""
    signal.signal(signal.SIGUSR1, tell_where_it_is)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(message)s"
    )
    if arguments:
        run(json.loads(arguments[0]))
        return
    for line in sys.stdin:
        spec = json.loads(line)
        with Path(spec["log"]).open("ab") as log:
            os.dup2(log.fileno(), sys.stderr.fileno())
        run(spec)
        while _readers:
            _readers.pop().stop()
        say(event="free")


def run(spec: dict[str, Any]) -> None:
    """One client, from its start to its end."""
    parts = replace(real_parts(), clock=ShiftedClock(spec.get("clock_off_s", 0.0)))
    client = KafkaStreams(build(spec), spec["config"], parts=parts)
    client.set_state_listener(lambda new, old: say(event="state", new=new.name, old=old.name))
    if "handler" in spec:
        client.set_uncaught_exception_handler(handler(spec["handler"]))
    say(event="created", client=client.client_id)
    if spec.get("start", True):
        client.start()
    if spec.get("wait"):
        # As programs do: the main thread waits, so that signals end it as they end a program.
        asked = threading.Thread(target=answer_questions, args=(client, spec), name="questions", daemon=True)
        asked.start()
        with suppress(StreamsException):
            client.wait()
        if client.state is KafkaStreams.State.ERROR:
            asked.join()  # it can still be asked what happened
    else:
        answer_questions(client, spec)
    say(event="ended", state=client.state.name)


if __name__ == "__main__":
    main(sys.argv[1:])
