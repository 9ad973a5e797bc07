"""A client that tests start as a process of its own, described by a JSON text: its topology, its handler,
its configuration.

It says on its standard output, a JSON object a line, what happens to it (`event`), and answers what it reads
from its standard input (`answer`); its log goes to the standard error output. See `cluster_world.py` for the
other side. Its own records: `key` None, the value is what is counted. `engine` is "spark", or "counting":
then counting_engine.py runs the program, without a JVM.
"""

from __future__ import annotations

import faulthandler
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

from counting_engine import CountingEngine
from readers import STORES, Readers

from millstream import (
    Consumed,
    FailureContext,
    KafkaStreams,
    LostTopicException,
    Materialized,
    MissingSourceTopicException,
    Produced,
    QueryableStoreTypes,
    Serdes,
    SessionWindows,
    StoreQueryParameters,
    StreamsBuilder,
    StreamsException,
    StreamThreadExceptionResponse,
    TimeWindows,
    Topology,
    UncaughtExceptionPolicy,
)
from millstream.clock import SystemClock
from millstream.polling import looks
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


def poisoned(flag: str, poison: str = "poison") -> Callable[[str], str]:
    """A Python function that raises at `poison`: as often as the file `flag` has bytes, which it takes away
    one by one; for ever where the file begins with '*'."""

    def check(value: str) -> str:
        path = Path(flag)
        if value == poison and path.exists() and (left := path.read_bytes()):
            if not left.startswith(b"*"):
                path.write_bytes(left[1:])
            raise ValueError("a poisonous record")
        return value

    return check


def _check(spec: dict[str, Any]) -> Callable[[Any], Any] | None:
    """The function that raises, as the client's engine calls it."""
    if "poison" not in spec:
        return None
    check = poisoned(spec["poison"])
    if _without_spark(spec):
        return check
    from pyspark.sql.functions import udf
    from pyspark.sql.types import StringType

    return udf(check, StringType())


def _without_spark(spec: dict[str, Any]) -> bool:
    return bool(spec.get("engine", "spark") == "counting")


def build(spec: dict[str, Any]) -> Topology:
    """`source` (a topic, or several), or `pattern`; a count of the values in the store `counts`; `output` has
    its updates. `windows` counts them by windows and by sessions as well. `poison` names the file of
    `poisoned`; `table` a topic for a global table."""
    check = _check(spec)
    if "proof" in spec:
        from proof_programs import build_proof  # which needs Spark's functions

        return build_proof(spec, check)
    builder = StreamsBuilder()
    source = re.compile(spec["pattern"]) if "pattern" in spec else spec["source"]
    stream = builder.stream(source, _TEXTS)
    if "table" in spec:
        builder.global_table(spec["table"], _TEXTS, Materialized.as_("table"))
    if check is not None:
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
    faulthandler.register(signal.SIGUSR2)  # also where no Python runs
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
    if _without_spark(spec):
        parts = replace(parts, engine=lambda config, closing, spark: CountingEngine(config))
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
