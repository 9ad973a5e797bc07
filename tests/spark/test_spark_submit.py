"""Programs that are started in the ways in which one tells Spark something on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from confluent_kafka import Producer
from spark_start import java_options

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.spark

_PROGRAM = """
import json, sys
from datetime import timedelta
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from millstream import Consumed, KafkaStreams, Serdes, StreamsBuilder
from millstream.spark.jvm.session import SharedSession

servers, source, directory = sys.argv[1:]

def fails(value):
    raise ValueError("raised in the program")

spark = SharedSession({"spark.sql.session.timeZone": "UTC"}, "my-application").spark
kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
rows = kafka.option("subscribe", source).load()
told = spark.sparkContext.getConf()
print(json.dumps({
    "master": told.get("spark.master"),
    "name": told.get("spark.app.name"),
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "rows": [bytes(row.value).decode() for row in rows.collect()],
    "partition": spark._jvm.io.millstream.kernel.Partitions.of(b"key", 10),
}))
if directory:
    builder = StreamsBuilder()
    lines = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.string()))
    lines.map_values(lambda value: F.udf(fails, StringType())(value)).to("out")
    streams = KafkaStreams(builder.build(), {
        "application.id": "plain", "bootstrap.servers": servers, "state.dir": directory,
    })
    streams.start()
    streams.wait_until_running(timedelta(seconds=100))
    try:
        streams.wait(timedelta(seconds=100))
    except Exception as error:
        print(type(error).__name__)
    streams.close()
"""


def run(
    command: list[str], directory: Path, kafka: EmbeddedKafka, state: Path | str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """The program, as a file of its own, with a temporary directory of its own."""
    program = directory / "app.py"
    program.write_text(_PROGRAM)
    (directory / "tmp").mkdir()
    root = Path(__file__).resolve().parent.parent.parent
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "MILLSTREAM_S"))
    }
    result = subprocess.run(
        [*command, str(program), kafka.bootstrap_servers, "submitted", str(state)],
        capture_output=True,
        text=True,
        timeout=230,
        env=kept | {"PYTHONPATH": str(root), "TMPDIR": str(directory / "tmp"), **environment},
    )
    assert result.returncode == 0, result.stderr[-5000:]
    return result


@pytest.mark.timeout(250)
def test_what_the_user_told_spark_submit_wins_over_our_defaults(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """And what the program told it, over that. Connector and kernel are there, though nobody named them."""
    if "submitted" not in kafka.topics():
        kafka.create_topic("submitted", 1)
    submit = Path(sysconfig.get_path("scripts")) / "spark-submit"
    options = ["--master", "local[3]", "--conf", "spark.sql.shuffle.partitions=5"]
    options += ["--conf", f"spark.driver.extraJavaOptions={java_options()}"]
    result = run([str(submit), *options], tmp_path, kafka, PYSPARK_PYTHON=sys.executable)
    said = json.loads(result.stdout.splitlines()[0])
    assert said == {
        "master": "local[3]",
        "name": "my-application",
        "partitions": "5",
        "rows": [],
        "partition": 1,
    }


@pytest.mark.timeout(250)
def test_on_stderr_of_a_plain_program_is_what_millstream_says_alone(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Also when a function fails; and the temporary directory is empty afterwards. What stands in
    PYSPARK_SUBMIT_ARGS is heard; where Millstream has something in the same setting (jars, Java's options),
    it is added."""
    kafka.create_topic("out", 1)
    if "submitted" not in kafka.topics():
        kafka.create_topic("submitted", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("submitted", b"a line")
    assert producer.flush(20) == 0
    jar = tmp_path / "own.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("of-the-user.txt", "")
    told = f"--master local[2] --jars {jar} --conf spark.sql.shuffle.partitions=6"
    java = f"'spark.driver.extraJavaOptions=-Dof.the=user {java_options()}'"
    result = run(
        [sys.executable],
        tmp_path,
        kafka,
        tmp_path / "state",
        PYSPARK_SUBMIT_ARGS=f"{told} --conf {java} pyspark-shell",
    )
    said, ended = result.stdout.splitlines()
    assert json.loads(said) == {
        "master": "local[2]",
        "name": "my-application",
        "partitions": "6",
        "rows": ["a line"],
        "partition": 1,
    }
    assert ended == "PipelineException"
    lines = result.stderr.splitlines()
    assert lines[0].startswith("stream-client [plain-")
    assert "ValueError: raised in the program" in result.stderr
    for noise in ("incubator", "log level", "=== Streaming Query ===", "Logical Plan", "py4j", "WARN"):
        assert noise not in result.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
