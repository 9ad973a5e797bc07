"""`millstream prepare`: prepares a machine or an image for fast starts without a network."""

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, print_as
from millstream.errors import StreamsException

if TYPE_CHECKING:
    from millstream.topology.topology import Topology

__all__ = ["prepare"]

_INPUT, _STORE = "prepare-input", "prepare-counts"
_RUN_SECONDS = 120.0
_ARCHIVE_SECONDS = 900.0


def prepare(
    jars_only: Annotated[
        bool,
        typer.Option("--jars-only", help="Only download jars; run nothing."),
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Prepare this machine, or an image: fetch jars, count words once, create the class-data archive.

    Programs then start faster here, and without a network. It takes one or two minutes; run it as the user
    that will run the programs. Exit code 1 if something that programs need is not available.
    """
    from importlib.metadata import version

    from millstream.jars import connector_set, ensure_jars

    began = time.monotonic()
    paths = ensure_jars(connector_set(version("pyspark")))
    found: dict[str, Any] = {"jars": len(paths), "jars_folder": str(paths[0].parent)}
    lines = [f"jars     {len(paths)} in {paths[0].parent}"]
    if not jars_only:
        found |= _run()
        lines.append(f"Spark    counted words {found['first_output_seconds']:.1f} s after the start")
        lines.append(
            f"archive  {found['archive'] or 'none; programs start without it, and the log says why'}"
        )
    found["seconds"] = round(time.monotonic() - began, 1)
    lines.append(f"ready after {found['seconds']:.0f} s")
    print_as(json, found, "\n".join(lines))


def _topology() -> Topology:
    from millstream import Consumed, Materialized, Serdes, StreamsBuilder

    builder = StreamsBuilder()
    (
        builder.stream(_INPUT, Consumed.with_(Serdes.string(), Serdes.string()))
        .group_by(lambda key, word: word)
        .count(Materialized.as_(_STORE))
        .to_stream()
        .to("prepare-output")
    )
    return builder.build()


def _run() -> dict[str, Any]:
    """Count words on a separate broker, and wait until the archive is written.

    Raises:
        StreamsException: the right count did not arrive in time.
    """
    from millstream import KafkaStreams
    from millstream.broker import EmbeddedKafka
    from millstream.config import StreamsConfig
    from millstream.kafka.records import write_records
    from millstream.model import KafkaRecord
    from millstream.polling import looks
    from millstream.spark.jvm.session import class_data_archive

    with tempfile.TemporaryDirectory(prefix="millstream-prepare-") as folder, EmbeddedKafka() as broker:
        broker.create_topic(_INPUT, 2)
        broker.create_topic("prepare-output", 2)
        config = {
            "application.id": "prepare",
            "bootstrap.servers": broker.bootstrap_servers,
            "state.dir": folder,
        }
        words = [
            KafkaRecord(_INPUT, -1, -1, None, word, -1)
            for word in (b"to", b"be", b"or", b"not", b"to", b"be")
        ]
        write_records(StreamsConfig(config), words)
        began = time.monotonic()
        with KafkaStreams(_topology(), config) as streams:
            streams.wait_until_running(timedelta(seconds=_RUN_SECONDS))
            store = streams.store(_STORE)
            for _ in looks(_RUN_SECONDS, every_s=0.1):
                if store.get("be") == 2:
                    break
            else:
                raise StreamsException(
                    f"the count of two words did not arrive within {_RUN_SECONDS:g} s; "
                    "`millstream doctor` checks what programs need"
                )
            first = round(time.monotonic() - began, 1)
            archive = class_data_archive(_ARCHIVE_SECONDS)
    return {"first_output_seconds": first, "archive": None if archive is None else str(archive)}
