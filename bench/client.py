"""A client in a process of its own, for benchmarks that kill it, and the program that it runs.

It prints a line of JSON, with the time of day, for each thing that happens to it. It ends when its input says
`close` or is closed. `bench.failures` starts it: `python -m bench.client '{"servers": …}'`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

__all__ = ["Agreements", "Child", "Event", "program"]

POISON = "poison"
_PATIENCE_S = 120.0


def program(source: str, output: str, flag: Path | None = None, *, counts: bool) -> Any:
    """The topology: a filter, or a count. While the file `flag` exists, it fails at a record `poison`."""
    from pyspark.sql import functions as F

    from millstream import Consumed, Materialized, Serdes, StreamsBuilder

    path, poison = str(flag), POISON  # the function below is sent to Python's workers with these

    def is_good(value: str) -> bool:
        if value == poison and os.path.exists(path):
            raise ValueError("this benchmark's poison")
        return True

    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.string()))
    if flag is None:
        good = stream.filter(lambda key, value: value != poison)
    else:
        good = stream.filter(lambda key, value: F.udf(is_good, "boolean", useArrow=False)(value))
    if counts:
        good.group_by_key().count(Materialized.as_("counts")).to_stream().to(output)
    else:
        good.to(output)
    return builder.build()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a client: a new state, work from the group, a call of its handler.

    Attributes:
        at: the time of day in seconds, which is the same for all processes of a machine.
    """

    at: float
    what: str
    detail: str = ""
    generation: int = 0


_AGREED = re.compile(r"stream-client \[(.+)\] generation (\d+): tasks (.*), standbys (?!.*, not yet )")
"""Without those that others still run: `not yet` follows."""


class Agreements(logging.Handler):
    """Reports what the group gave a client, from the line that the client logs about it."""

    def __init__(self, tell: Callable[[str, Event], None]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell
        self._logger = logging.getLogger("millstream.runtime.client")

    def __enter__(self) -> Agreements:
        self._before = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before)

    def emit(self, record: logging.LogRecord) -> None:
        at = time.time()
        if found := _AGREED.match(record.getMessage()):
            client, generation, tasks = found.groups()
            self._tell(client, Event(at, "work", tasks, int(generation)))


# --- for the benchmark -----------------------------------------------------------------------------------


class Child:
    """A client in a process, with Spark in another one; both are in one process group and end together."""

    def __init__(self, log: Path, **given: object) -> None:
        self.events: list[Event] = []
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.client", json.dumps(given, default=str)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**os.environ, "MILLSTREAM_SPARK_LOG": str(log)},
            )
        self._reader = threading.Thread(target=self._read, name="bench-child", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, what: str, detail: str = "", *, after: float = 0.0) -> Event:
        """The first such event after the time `after`.

        Raises:
            TimeoutError: it did not come in time.
            RuntimeError: the process ended without it.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            ended = not self._reader.is_alive()
            for event in tuple(self.events):
                if event.what == what and detail in ("", event.detail) and event.at >= after:
                    return event
            if ended:
                raise RuntimeError(f"the client ended without '{what} {detail}'; see {self._log}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no '{what} {detail}' in {_PATIENCE_S:g} s; see {self._log}")
            time.sleep(0.005)

    def is_up(self) -> bool:
        """Whether it is running, and has not ended in ERROR."""
        return self._reader.is_alive() and not any(event.detail == "ERROR" for event in tuple(self.events))

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill it and Spark with SIGKILL, as when a machine fails."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(Event(**json.loads(line)))


# --- the process itself ----------------------------------------------------------------------------------


def main(given: Mapping[str, Any]) -> None:
    """Run the client until the input says so."""
    from millstream import KafkaStreams, StreamThreadExceptionResponse

    lock = threading.Lock()

    def tell(what: str, detail: str = "", at: float | None = None, generation: int = 0) -> None:
        moment = time.time() if at is None else at
        with lock:
            print(
                json.dumps({"at": moment, "what": what, "detail": detail, "generation": generation}),
                flush=True,
            )

    def handler(exception: BaseException) -> StreamThreadExceptionResponse:
        tell("handler", type(exception).__name__)
        return StreamThreadExceptionResponse[given["response"]]

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    flag = Path(given["flag"]) if given["flag"] else None
    topology = program(given["source"], given["output"], flag, counts=True)
    streams = KafkaStreams(topology, given["config"])
    streams.set_uncaught_exception_handler(handler)
    streams.set_state_listener(lambda new, old: tell("state", new.name))
    with Agreements(lambda _, event: tell("work", event.detail, event.at, event.generation)):
        streams.start()
        streams.wait_until_running(timedelta(seconds=_PATIENCE_S))
        tell("running")
        if given["config"].get("keep.spark.warm"):
            deadline = time.monotonic() + _PATIENCE_S
            while not streams._assembly.is_warm and time.monotonic() < deadline:
                time.sleep(0.02)
            tell("warm", str(streams._assembly.is_warm))
        sys.stdin.readline()
        streams.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
