"""A program with Python functions lives on after Spark's JVM was killed: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.spark

_PROGRAM = textwrap.dedent(
    """
    import os, sys
    from collections import Counter
    from datetime import timedelta
    from pathlib import Path
    from confluent_kafka import Producer
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark import SparkContext
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType
    from millstream import (
        Consumed, KafkaStreams, Materialized, PipelineException, Printed, QueryableStoreTypes, Serdes,
        StoreQueryParameters, StreamsBuilder, StreamThreadExceptionResponse,
    )
    from spark_start import WITHOUT_CODE, java_options
    from waiting import wait_until

    TEXT = StringType()  # functions of the module, made before Spark runs, and each used by several lambdas
    upper = F.udf(lambda value: value.upper(), TEXT)
    class Held:
        strip = F.pandas_udf(lambda values: values.str.strip(), TEXT)
    marked = F.arrow_udf(lambda values: pc.binary_join_element_wise(values, "!", ""), TEXT)

    class Stdout:
        said = ""
        def write(self, text):
            self.said += text
            return sys.__stdout__.write(text)
        def flush(self):
            sys.__stdout__.flush()

    sys.stdout = Stdout()
    servers, directory = sys.argv[1:]
    builder = StreamsBuilder()
    words = builder.stream("jvm-words", Consumed.with_(Serdes.string(), Serdes.string()))
    words.print(Printed.to_sys_out().with_label("in"))
    words.foreach(lambda key, value: print("seen", repr(value)))
    loud = words.map_values(lambda value: upper(Held.strip(value)))
    by_word = loud.select_key(lambda key, value: upper(value)).group_by_key()
    by_word.count(Materialized.as_("counts"))
    words.map_values(lambda value: marked(upper(value))).map_values(lambda value: marked(value)).to("udf-out")
    by_word.aggregate(
        lambda: 0, lambda key, value, total: total + len(value),
        Materialized.as_("lengths").with_value_serde(Serdes.long()),
    )
    streams = KafkaStreams(builder.build(), {
        "application.id": "jvm-killed", "bootstrap.servers": servers, "state.dir": directory,
        "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": java_options(),
        **WITHOUT_CODE,
    })
    handled = []
    def handler(error):
        handled.append(error)
        return StreamThreadExceptionResponse.REPLACE_THREAD
    streams.set_uncaught_exception_handler(handler)
    expected = Counter()
    producer = Producer({"bootstrap.servers": servers})
    def produce(*texts):
        for text in texts:
            producer.produce("jvm-words", text, "k")
            expected[text.strip().upper()] += 1
        assert producer.flush(20) == 0
    def holds(store, wanted):
        def look():
            try:
                handle = streams.store(StoreQueryParameters(store, QueryableStoreTypes.key_value_store()))
                with handle.all() as entries:
                    return dict(entries) == wanted
            except Exception as error:
                return None
        wait_until(look, f"{store} holds {wanted}; handled {handled}", 150)
    produce("a ", "b", " a")
    streams.start()
    streams.wait_until_running(timedelta(seconds=150))
    holds("counts", expected)
    temporary = Path(os.environ["TMPDIR"])
    [before] = temporary.glob("millstream-spark-*")
    assert list(before.rglob("librocksdbjni*")), list(before.rglob("*"))
    os.kill(SparkContext._gateway.proc.pid, 9)
    produce("b", "c")
    holds("counts", expected)
    holds("lengths", {word: count * len(word) for word, count in expected.items()})
    assert streams.state.name == "RUNNING", streams.state
    assert len({failure.pipeline for failure in handled}) == len(handled) > 0, handled
    for failure in handled:
        assert isinstance(failure, PipelineException), failure
        assert "Java process is gone: it was killed (SIGKILL)" in str(failure), failure
    [after] = temporary.iterdir()  # nothing is left of the dead, and all that lives has one place
    assert after != before
    for line in ("[in]: k, c", "seen 'c'"):
        wait_until(lambda: line in sys.stdout.said.splitlines(), f"{line} is printed")
    streams.close(timedelta(seconds=20))
    print("exact:", dict(expected))
    """
)


@pytest.mark.timeout(400)
def test_python_functions_of_a_program_run_again_after_the_jvm_was_killed(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Functions of all kinds, kept in a module and in a class, used by several lambdas, beside a fold in
    Python: the handler is asked once for a pipeline, and the counts are exact. What the killed one left in
    the temporary directory is gone when the next one has started, and all of it at the end. What the program
    prints of its records is in its stdout, and nothing else."""
    kafka.create_topic("jvm-words", 1)
    kafka.create_topic("udf-out", 1)
    tests = Path(__file__).resolve().parent.parent
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, kafka.bootstrap_servers, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=380,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)]), "TMPDIR": str(temporary)},
    )
    assert result.returncode == 0, result.stderr[-5000:]
    *printed, exact = result.stdout.splitlines()
    assert exact == "exact: {'A': 2, 'B': 2, 'C': 1}"
    values = ("a ", "b", " a", "c")
    assert set(printed) <= {f"[in]: k, {value}" for value in values} | {f"seen {value!r}" for value in values}
    assert {"[in]: k, c", "seen 'c'"} <= set(printed)
    assert list(temporary.iterdir()) == []
    for noise in ("Exception occurred during", "Exception while sending", "incubator", "log level"):
        assert noise not in result.stderr
