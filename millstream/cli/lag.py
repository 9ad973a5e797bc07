"""`millstream lag`: how far an application has read, by its group's offsets in Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from millstream.cli.cluster import cluster_config, lags, topics_of
from millstream.cli.command_settings import BootstrapServer, ConfigFile, Setting
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, print_as, table
from millstream.errors import StreamsException
from millstream.model import TopicPartition

__all__ = ["lag", "lag_as_dict", "lag_table"]

Row = tuple[TopicPartition, int, int, int]


def lag(
    application_id: Annotated[
        str,
        typer.Argument(
            metavar="APPLICATION_ID", help="The application.id, or any group id.", show_default=False
        ),
    ],
    bootstrap_server: BootstrapServer = None,
    config_file: ConfigFile = None,
    set_: Setting = None,
    at_most: Annotated[
        int | None,
        typer.Option("--at-most", min=0, help="Exit with 1 if more records than this are left to read."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print how far an application has read each partition, and how many records are left.

    The offsets are those in Kafka, which pipelines commit after each batch. Records read since then count as
    lag.
    """
    config = cluster_config(config_file, set_, bootstrap_server, application_id)
    with topics_of(config) as topics:
        named = [name for name in topics.names() if not name.startswith("__")]
        counts = {name: each.partitions for name, each in topics.look(named, patient=True).items()}
        every = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
        committed = topics.committed(application_id, every)
        if not committed:
            raise StreamsException(
                f"group '{application_id}' has committed nothing on {','.join(config.bootstrap_servers)}: it "
                "has read nothing yet, or this is the wrong cluster or application.id"
            )
        rows = lags(committed, topics.beginning_offsets(committed), topics.end_offsets(committed))
    print_as(json, lag_as_dict(application_id, rows), lag_table(rows))
    total = sum(row[3] for row in rows)
    if at_most is not None and total > at_most:
        raise typer.Exit(1)


def lag_as_dict(group: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The lag in a form for `json.dumps`."""
    return {
        "application_id": group,
        "lag": sum(row[3] for row in rows),
        "partitions": [
            {"topic": at.topic, "partition": at.partition, "offset": here, "end": end, "lag": left}
            for at, here, end, left in rows
        ],
    }


def lag_table(rows: Sequence[Row]) -> str:
    """A line for each partition, and the total."""
    numbers = ("partition", "offset", "end", "lag")
    shown: list[tuple[object, ...]] = [
        (at.topic, at.partition, f"{here:,}", f"{end:,}", f"{left:,}") for at, here, end, left in rows
    ]
    shown.append(("all", "", "", "", f"{sum(row[3] for row in rows):,}"))
    return table(("topic", *numbers), shown, right=numbers)
