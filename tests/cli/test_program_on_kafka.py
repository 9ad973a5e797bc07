"""A program that `millstream run` runs on a real broker; seen, asked and told by the other commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import Seen, chromium
from cli_running import run
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from playwright.sync_api import expect
from spark_start import java_options
from waiting import wait_until

from millstream.broker import EmbeddedKafka

PROGRAM = """
from cli_kafka_names import join

from millstream import Consumed, Materialized, Serdes, StreamsBuilder

string = Serdes.string()
builder = StreamsBuilder()
words = builder.stream("cli-words", Consumed.with_(string, string))
lists = words.group_by_key().aggregate(
    lambda: "",
    lambda key, word, so_far: join(so_far, word),
    Materialized.as_("lists").with_value_serde(string),
)
lists.to_stream().to("cli-lists")
"""
TOKEN = "a-token-for-tests"


@pytest.fixture
def process(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The program. Its fold calls a function of another module of it, which Python workers have to find."""
    (tmp_path / "cli_kafka_app.py").write_text(PROGRAM)
    (tmp_path / "cli_kafka_names.py").write_text('def join(so_far, word):\n    return f"{so_far}+{word}"\n')
    for topic in ("cli-words", "cli-lists"):
        kafka.create_topic(topic, 1)
    settings = {
        "MILLSTREAM_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "MILLSTREAM_QUERY_SERVER_ENABLED": "true",
        "MILLSTREAM_QUERY_SERVER_TOKEN": TOKEN,
        "MILLSTREAM_UI_ENABLED": "true",
        "MILLSTREAM_STATE_DIR": str(tmp_path / "state"),
        "PYSPARK_SUBMIT_ARGS": shlex.join(
            ["--conf", f"spark.driver.extraJavaOptions={java_options()}", "pyspark-shell"]
        ),
    }
    command = ["run", "cli_kafka_app:builder", "--application-id", "cli-kafka", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", *command, "--app-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    )
    yield process
    process.kill()
    process.communicate()


def events(process: subprocess.Popen[str], last: str) -> list[dict[str, str]]:
    """What it prints, up to the event of that name."""
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        found.append(json.loads(line))
        if found[-1]["event"] == last:
            return found
    raise AssertionError(f"it has ended without {last}; it has said {found}")


def look_at_it(url: str) -> None:
    """Each view of the dashboard, in a browser, of a client on real Kafka and Spark."""
    with chromium() as browser:
        seen = Seen(browser, f"{url}/ui/")
        seen.log_in(TOKEN)
        page = seen.show("Overview")
        expect(page.get_by_role("banner")).to_contain_text("RUNNING")
        expect(page.get_by_role("row").filter(has_text="p0")).to_contain_text("runs")
        seen.show("Topology")
        expect(page.get_by_role("region", name="Drawing of the topology")).to_contain_text("cli-words")
        expect(page.get_by_role("row").filter(has_text="cli-words")).to_be_visible()
        seen.show("Stores")
        page.get_by_role("textbox", name="Key", exact=True).fill("k")
        page.get_by_role("button", name="Read").click()
        expect(page.get_by_role("table", name="Entries")).to_contain_text("+a+b")
        seen.show("Failures")
        expect(page.get_by_text("nothing has failed")).to_be_visible()
        seen.show("Spark")
        expect(page.get_by_role("row").filter(has_text="commit")).to_contain_text("ms")
        seen.show("Clients")
        expect(page.get_by_role("region", name="Group").get_by_role("definition").first).to_have_text("1")
        seen.show("Metrics")
        for words, value in (
            ("records-produced-total cli-lists", r"^\d$"),
            ("bytes-produced-total cli-lists", r"^\d{2,3}$"),
            ("stream-topic bytes-consumed-total cli-words", r"^\d{2,3}$"),
            ("record-e2e-latency-max", r"^[\d,]+$"),
            ("stream-thread commit-total", r"^[\d,]*[1-9][\d,]*$"),
        ):
            page.get_by_role("searchbox").fill(words)
            table = page.get_by_role("table", name="Metrics of this client")
            expect(table.get_by_role("row"), words).to_have_count(2)
            expect(table.get_by_role("cell").nth(1), words).to_have_text(re.compile(value))
        assert [each for each in seen.wrong if "401" not in each] == []
        seen.close()


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_a_program_runs_is_asked_and_ends_by_sigterm(
    kafka: EmbeddedKafka, process: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Records that are produced are in its store and its output; its state is told until it is closed."""
    ready = events(process, "ready")[-1]
    where = {"MILLSTREAM_URL": ready["url"], "MILLSTREAM_TOKEN": TOKEN}
    where["MILLSTREAM_BOOTSTRAP_SERVERS"] = kafka.bootstrap_servers

    def said(*arguments: str) -> str:
        code, text = run(*arguments, **where)
        assert code == 0, text
        return text

    assert said("produce", "cli-words", "a", "b", "--with-key", "k") == "cli-words-0@0\ncli-words-0@1\n"
    wait_until(
        lambda: run("query", "get", "lists", "k", **where) == (0, "+a+b\n"), "the words are in it", 120, 0.3
    )
    assert said("tail", "cli-lists", "--value", "string").endswith("  k  +a+b\n")
    assert json.loads(said("tail", "cli-words", "--from", "1", "--json"))["value"] == "b"
    wait_until(lambda: run("lag", "cli-kafka", "--at-most", "0", **where)[0] == 0, "all is committed")
    [row] = json.loads(said("lag", "cli-kafka", "--json"))["partitions"]
    assert (row["topic"], row["offset"], row["lag"]) == ("cli-words", 2, 0)
    assert "running (ready)" in said("status")
    assert json.loads(said("top", "--json"))["threads"][0]["pipelines"][0]["records"] == 2
    checked = json.loads(said("doctor", "--application-id", "cli-kafka", "--json"))
    assert [each["grade"] for each in checked["checks"] if each["check"] in ("broker", "configuration")] == [
        "ok"
    ] * 2
    look_at_it(ready["url"])
    process.send_signal(signal.SIGTERM)
    assert events(process, "state")[-1]["to"] == "PENDING_SHUTDOWN"
    assert process.wait(30) == 143

    # A changelog keeps its count when its source gains partitions; a client starts, so nothing is wrong.
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions("cli-words", 2)]).values():
        future.result(30)
    _, text = run(
        *("doctor", "cli_kafka_app:builder", "--app-dir", str(tmp_path), "--json"),
        *("--application-id", "cli-kafka"),
        **where,
    )
    topics = next(each for each in json.loads(text)["checks"] if each["check"] == "topics")
    assert topics["grade"] == "ok", topics
