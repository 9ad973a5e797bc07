"""Closing while Spark starts: whoever closes does not wait for a JVM, and no second one is started."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from spark_start import java_options

_PROGRAM = textwrap.dedent(
    """
    import sys, threading, time
    from pyspark import SparkContext
    from millstream.errors import StreamsException
    from millstream.spark.jvm.session import SharedSession, _Launch

    ends = {}
    def start(name, closing):
        begun = time.monotonic()
        try:
            ends[name] = SharedSession({"spark.driver.extraJavaOptions": sys.argv[1]}, name, None, closing)
        except StreamsException as error:
            ends[name] = error
        ends[name + " seconds"] = time.monotonic() - begun

    # One that starts the JVM, and one that waits for it; both are closed while it starts.
    closing = threading.Event()
    threads = [threading.Thread(target=start, args=(name, closing)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while _Launch.current is None and time.monotonic() < deadline:
        time.sleep(0.01)
    begun = time.monotonic()
    closing.set()
    for thread in threads:
        thread.join(10)
    taken = time.monotonic() - begun
    assert taken < 1, taken
    for name in ("first", "second"):
        assert "closed while Spark was starting" in str(ends[name]), ends
    launch = _Launch.current
    assert SparkContext._gateway is None
    # The JVM that was starting then ends by itself.
    assert launch.done.wait(60)
    assert launch.result().proc.wait(20) is not None
    assert _Launch.current is launch
    # And the next client starts one of its own.
    start("third", threading.Event())
    session = ends["third"]
    assert session.is_alive, session
    session.spark._jvm.java.lang.System.out.println("said by the JVM")
    session.close()
    assert not session.is_alive
    start("late", closing)
    assert isinstance(ends["late"], StreamsException)
    print("closed in", taken)
    """
)


@pytest.mark.spark
def test_closing_while_spark_starts_does_not_wait_for_it() -> None:
    """In a process of its own, in which no Spark runs yet, and whose stdout the JVM does not get."""
    root = Path(__file__).resolve().parent.parent.parent
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, java_options()],
        capture_output=True,
        text=True,
        timeout=150,
        env={name: value for name, value in os.environ.items() if name != "MILLSTREAM_SPARK_LOG"}
        | {"PYTHONPATH": str(root)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "closed in" in result.stdout
    assert "said by the JVM" in result.stderr
    assert "said by the JVM" not in result.stdout
