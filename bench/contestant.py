"""Millstream, and Structured Streaming written by hand, each as a process that runs one job after the other.

    python -m bench.contestant millstream | spark [SETTINGS]

It answers each line of JSON with a line: `start`, with a job and its topics, when the job runs; `begun` with
the time at which it began with its first record; `check`, `used`, `stop`. Jobs are those of
`bench.workloads`, and `count`. Spark keeps running between them, with the settings that Millstream gives its
own.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

__all__ = ["main", "obey", "program"]

_TUMBLING_S, _NEAR_S, _GRACE = 20, 5, timedelta(hours=1)
_ORDER = "user STRING, amount BIGINT"


def program(job: str, left: str, right: str, output: str) -> Any:
    """A job as a user of Millstream writes it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType

    from millstream import (
        Consumed,
        JoinWindows,
        Materialized,
        Serdes,
        SessionWindows,
        StreamsBuilder,
        TimeWindows,
    )

    strings = Consumed.with_(Serdes.string(), Serdes.string())
    near = timedelta(seconds=_NEAR_S)
    builder = StreamsBuilder()

    def orders() -> Any:
        return builder.stream(left, Consumed.with_(Serdes.string(), Serdes.json(_ORDER)))

    def both(one: Any, other: Any) -> Any:
        return F.concat(one, F.lit(","), other)

    if job == "map":
        kept = builder.stream(left, strings).filter(lambda key, value: ~value.startswith("drop"))
        kept.map_values(lambda value: F.upper(value)).to(output)
    elif job == "words":
        lines = builder.stream(left, Consumed.with_(Serdes.bytes(), Serdes.string()))
        words = lines.flat_map_values(lambda line: F.split(F.lower(line), " ")).group_by(lambda _, word: word)
        words.count(Materialized.as_("counts")).to_stream().to(output)
    elif job == "count":
        builder.stream(left, strings).group_by_key().count(Materialized.as_("counts")).to_stream().to(output)
    elif job.startswith("counts-"):  # this number of pipelines, with numbered topics
        for number in range(int(job.removeprefix("counts-"))):
            stream = builder.stream(f"{left}-{number}", strings)
            stream.group_by_key().count(Materialized.as_(f"counts-{number}")).to_stream().to(output)
    elif job == "windows":
        windows = TimeWindows.of_size_and_grace(timedelta(seconds=_TUMBLING_S), _GRACE)
        counted = builder.stream(left, strings).group_by_key().windowed_by(windows).count()
        counted.to_stream().to(output)
    elif job == "sessions":
        sessions = SessionWindows.of_inactivity_gap_and_grace(near, _GRACE)
        builder.stream(left, strings).group_by_key().windowed_by(sessions).count().to_stream().to(output)
    elif job == "join":
        apart = JoinWindows.of_time_difference_and_grace(near, _GRACE)
        builder.stream(left, strings).join(builder.stream(right, strings), both, apart).to(output)
    elif job == "lookup":
        builder.stream(left, strings).join(builder.table(right, strings), both).to(output)
    elif job == "fold":
        folded = (
            orders()
            .group_by_key()
            .aggregate(
                lambda: 0,
                lambda key, order, total: total + order["amount"],
                Materialized.as_("totals").with_value_serde(Serdes.long()),
            )
        )
        folded.to_stream().to(output)
    elif job == "udf":
        doubled = F.udf(lambda amount: amount * 2, LongType())
        orders().map_values(lambda order: doubled(order["amount"])).to(output)
    else:
        raise ValueError(f"no job '{job}'")
    return builder.build()


# --- by hand ---------------------------------------------------------------------------------------------


def query(spark: Any, servers: str, job: str, left: str, right: str, output: str, checkpoint: Path) -> Any:
    """The same job in Structured Streaming: the same results; those of a count go to a changelog too.

    `right` is the changelog if there is no right topic to read.
    """
    from pyspark.sql import functions as F

    def read(topic: str) -> Any:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return reader.option("kafka.fetch.max.wait.ms", "10").load()

    def text(column: str) -> Any:
        return F.col(column).cast("string")

    def long(column: Any) -> Any:
        return F.unhex(F.lpad(F.hex(column), 16, "0"))

    rows = read(left)
    mode = "append"
    if job == "map":
        kept = rows.filter(~text("value").startswith("drop"))
        result = _to(output, kept.select("key", F.upper(text("value")).cast("binary").alias("value")))
    elif job in ("words", "count"):
        mode = "update"
        if job == "words":
            words = F.explode(F.split(F.lower(text("value")), " ")).alias("word")
            rows = rows.select(words, "timestamp").select(
                text("word").cast("binary").alias("key"), "timestamp"
            )
        counted = rows.groupBy("key").agg(F.count("*").alias("n"), F.max("timestamp").alias("latest"))
        result = _twice(output, right, counted.select("key", long(F.col("n")).alias("value"), "latest"))
    elif job == "windows":
        mode = "update"
        timed = rows.withWatermark("timestamp", f"{_GRACE.seconds} seconds")
        window = F.window("timestamp", f"{_TUMBLING_S} seconds")
        counted = timed.groupBy("key", window).agg(
            F.count("*").alias("n"), F.max("timestamp").alias("latest")
        )
        key = F.concat("key", long(F.unix_millis(F.col("window.start"))))
        result = _twice(
            output, right, counted.select(key.alias("key"), long(F.col("n")).alias("value"), "latest")
        )
    elif job == "join":
        sides = []
        for topic, name in ((left, "left"), (right, "right")):
            side = read(topic).select(
                F.col("key").alias(f"{name}_key"),
                text("value").alias(f"{name}_value"),
                F.col("timestamp").alias(f"{name}_at"),
            )
            sides.append(side.withWatermark(f"{name}_at", f"{_GRACE.seconds} seconds"))
        apart = F.expr(f"interval {_NEAR_S} seconds")
        near = F.col("right_at").between(F.col("left_at") - apart, F.col("left_at") + apart)
        joined = sides[0].join(sides[1], (F.col("left_key") == F.col("right_key")) & near)
        value = F.concat("left_value", F.lit(","), "right_value").cast("binary")
        result = _to(output, joined.select(F.col("left_key").alias("key"), value.alias("value")))
    elif job == "fold":
        mode = "update"
        result = _to(output, _folded(rows))
    elif job == "udf":
        doubled = F.udf(lambda amount: amount * 2, "bigint")
        amount = F.from_json(text("value"), _ORDER)["amount"]
        result = _to(output, rows.select("key", long(doubled(amount)).alias("value")))
    else:
        raise ValueError(f"no job '{job}'")
    writer = result.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return writer.option("checkpointLocation", str(checkpoint)).outputMode(mode).start()


def _to(topic: str, rows: Any) -> Any:
    from pyspark.sql import functions as F

    return rows.withColumn("topic", F.lit(topic))


def _twice(output: str, changelog: str, counted: Any) -> Any:
    """Write each count to both topics. Spark's sink writes no timestamp, so a changelog's is in a header."""
    from pyspark.sql import functions as F

    headers = "array<struct<key: string, value: binary>>"
    at = F.unhex(F.lpad(F.hex(F.unix_millis("latest")), 16, "0"))
    stamp = F.array(F.struct(F.lit("timestamp").alias("key"), at.alias("value")))
    topics = F.array(
        F.struct(F.lit(changelog).alias("topic"), stamp.cast(headers).alias("headers")),
        F.struct(F.lit(output).alias("topic"), F.lit(None).cast(headers).alias("headers")),
    )
    return counted.select("key", "value", F.explode(topics).alias("to")).select("key", "value", "to.*")


def _folded(rows: Any) -> Any:
    """Totals, computed by a Python function with state."""
    import pandas as pd
    from pyspark.sql import functions as F

    def total(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        so_far = state.get[0] if state.exists else 0
        for frame in frames:
            for amount in frame["amount"]:
                so_far += amount
        state.update((int(so_far),))
        yield pd.DataFrame({"key": [key[0]], "total": [so_far]})

    orders = rows.select(
        F.col("key").cast("string").alias("key"),
        F.from_json(F.col("value").cast("string"), _ORDER)["amount"].alias("amount"),
    )
    totals = orders.groupBy("key").applyInPandasWithState(
        total, "key STRING, total BIGINT", "total BIGINT", "update", "NoTimeout"
    )
    value = F.unhex(F.lpad(F.hex("total"), 16, "0"))
    return totals.select(F.col("key").cast("binary").alias("key"), value.alias("value"))


# --- the processes ---------------------------------------------------------------------------------------


class Contestant(Protocol):
    """What the lines of input control."""

    def start(
        self, job: str, left: str, right: str, output: str, directory: Path, settings: Mapping[str, str]
    ) -> None: ...

    def begun(self) -> float: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...


class Millstream:
    """Clients, one after the other."""

    def __init__(self, servers: str, settings: Mapping[str, str], *, keep_spark: bool) -> None:
        from pyspark.sql import functions  # noqa: F401 - a program's import, not part of starting a client

        import millstream  # noqa: F401

        self._servers, self._settings = servers, settings
        self._spark: Any = None
        if keep_spark:
            from millstream.spark.jvm.session import SharedSession

            spark = {name: value for name, value in settings.items() if name.startswith("spark.")}
            self._spark = SharedSession(spark, "millstream-bench")

    def start(
        self, job: str, left: str, right: str, output: str, directory: Path, settings: Mapping[str, str]
    ) -> None:
        from millstream import KafkaStreams

        application = f"{job}-{output}"
        config = {
            "application.id": application,
            "bootstrap.servers": self._servers,
            "state.dir": str(directory),
            **self._settings,
            **settings,
        }
        self._streams = KafkaStreams(program(job, left, right, output), config)
        self._streams.start()
        self._begun = 0.0
        self._reading = threading.Thread(target=self._note_begun, args=(self._streams,), daemon=True)
        self._reading.start()
        self._streams.wait_until_running(timedelta(seconds=90))

    def _note_begun(self, streams: Any) -> None:
        from bench.words import first_read

        with suppress(Exception):  # `check` has the reason
            self._begun = first_read(streams, math.inf)

    def begun(self) -> float:
        self._reading.join()
        return self._begun

    def check(self) -> None:
        from bench.words import is_up

        if not is_up(self._streams)():
            raise RuntimeError(f"the client is {self._streams.state}")

    def stop(self) -> None:
        self._streams.close()


class Spark:
    """Queries written by hand, one after the other."""

    def __init__(self, servers: str, settings: Mapping[str, str]) -> None:
        from millstream.spark.jvm.session import SharedSession

        self._servers = servers
        self._session = SharedSession(settings, "by-hand")

    def start(
        self, job: str, left: str, right: str, output: str, directory: Path, settings: Mapping[str, str]
    ) -> None:
        self._checkpoint = directory
        self._query = query(self._session.spark, self._servers, job, left, right, output, directory)

    def begun(self) -> float:
        from bench.lab import first_begun

        return first_begun(self._checkpoint)

    def check(self) -> None:
        error = self._query.exception()
        if error is not None:
            raise error
        if not self._query.isActive:
            raise RuntimeError("the query has ended")

    def stop(self) -> None:
        self._query.stop()


def obey(contestant: Contestant) -> None:
    """Answer lines until there are no more; then end, whatever is running."""
    lines: Iterator[str] = iter(sys.stdin.readline, "")
    arrived = threading.Condition()
    waiting: list[str] = []

    def read() -> None:
        for line in lines:
            with arrived:
                waiting.append(line)
                arrived.notify()
        os._exit(0)  # the parent is gone; Spark's JVM ends with this process

    threading.Thread(target=read, name="bench-input", daemon=True).start()
    while True:
        with arrived:
            arrived.wait_for(lambda: bool(waiting))
            what = json.loads(waiting.pop(0))
        answer: dict[str, object]
        try:
            answer = _done(contestant, what)
        except Exception as error:
            import traceback

            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(answer), flush=True)


def _done(contestant: Contestant, what: Mapping[str, Any]) -> dict[str, object]:
    match what["do"]:
        case "ready":
            pass  # it was created before the request
        case "start":
            topics = (what["left"], what["right"], what["output"])
            begun = time.monotonic()
            contestant.start(what["job"], *topics, Path(what["directory"]), what["settings"])
            return {"seconds": time.monotonic() - begun}
        case "begun":
            return {"at": contestant.begun()}
        case "check":
            contestant.check()
        case "stop":
            contestant.stop()
        case other:
            raise ValueError(f"cannot {other}")
    return {}


def main() -> None:
    """Run the contestant that the arguments name."""
    name, servers, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    contestant: Contestant
    if name == "millstream":
        keep = settings.pop("keep", True)
        contestant = Millstream(servers, settings, keep_spark=keep)
    else:
        contestant = Spark(servers, settings)
    obey(contestant)


if __name__ == "__main__":
    main()
