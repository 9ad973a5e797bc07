"""`millstream tail` and `produce`: records of topics, with the client's settings for Kafka."""

from __future__ import annotations

import heapq
import json as json_
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.cluster import cluster_config, partitions_of, topics_of
from millstream.cli.command_settings import BootstrapServer, ConfigFile, Setting
from millstream.cli.error_messages import Debug
from millstream.cli.lines import pieces
from millstream.cli.output import Json, as_json
from millstream.cli.record_forms import (
    RecordForm,
    bytes_of,
    parse_header,
    parse_time,
    reader_of,
    record_as_dict,
    record_line,
    takes_json,
    written,
)
from millstream.model import KafkaRecord, TopicPartition

if TYPE_CHECKING:
    from millstream.config import StreamsConfig
    from millstream.kafka.topics import KafkaTopics

__all__ = ["Begin", "begin_of", "first_offsets", "produce", "record_of_line", "tail"]

_USUALLY = 10
_MOST = 10_000
_WITHIN_S = 0.5
"""How long a line waits for more lines before it is written, because the writer of a pipe may pause."""

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
KeyForm = Annotated[RecordForm, typer.Option("--key", "-k", help="The format of keys.")]
ValueForm = Annotated[RecordForm, typer.Option("--value", "-v", help="The format of values.")]


def tail(
    topic: Topic,
    bootstrap_server: BootstrapServer = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            "-n",
            min=0,
            max=_MOST,
            help=f"At most this many of the last records. [default: {_USUALLY}]",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="earliest|OFFSET|TIME",
            help="Instead, all records from the earliest, from an offset, or from a time such as "
            "2026-05-01T12:00:00Z.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new records until Ctrl-C.")
    ] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    timeout: Annotated[float | None, typer.Option(min=0.0, help="Stop after this many seconds.")] = None,
    key: KeyForm = RecordForm.AUTO,
    value: ValueForm = RecordForm.AUTO,
    headers: Annotated[bool, typer.Option("--headers", help="Also show headers.")] = False,
    uncommitted: Annotated[
        bool,
        typer.Option("--uncommitted", help="Also show records of open and aborted transactions."),
    ] = False,
    config_file: ConfigFile = None,
    set_: Setting = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print records of a topic: at most the last ten, or from a chosen place.

    --follow keeps printing new records. 'auto' shows text as text and other bytes as 0x and hexadecimal
    digits. avro, json_schema and protobuf use the registry in the setting schema.registry.url. With --json
    each record is one line, in which bytes are {"$bytes": base64}; `produce --records` reads these lines.
    """
    from millstream.kafka.records import read_records

    if last is not None and from_ is not None:
        raise typer.BadParameter("--last and --from cannot be combined; use one of them")
    begin = begin_of(from_)
    config = cluster_config(config_file, set_, bootstrap_server)
    key_reader = reader_of(key, lambda name: serde_of(config, name, topic, is_key=True))
    value_reader = reader_of(value, lambda name: serde_of(config, name, topic, is_key=False))

    def show(records: Iterable[KafkaRecord]) -> None:
        for record in records:
            shown = record_as_dict(record, key_reader, value_reader)
            typer.echo(as_json(shown, one_line=True) if json else record_line(shown, headers=headers))

    deadline = None if timeout is None else time.monotonic() + timeout

    def left() -> float | None:
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    with topics_of(config) as topics:
        partitions = [at for at in partitions_of(topics, topic) if partition in (None, at.partition)]
        if not partitions:
            raise typer.BadParameter(
                f"topic '{topic}' has no partition {partition}", param_hint="--partition"
            )
        ends = topics.end_offsets(partitions)
        wanted = (_USUALLY if last is None else last) if from_ is None else None
        starts = first_offsets(topics, begin, wanted, partitions, ends)
    if wanted is not None:
        found = read_records(config, starts, ends, timeout_s=left(), uncommitted=uncommitted)
        newest = heapq.nlargest(wanted, found, key=lambda each: (each.timestamp, each.partition, each.offset))
        show(islice(reversed(newest), count))
        count, starts = None if count is None else count - min(len(newest), count), dict(ends)
        if not follow or count == 0:
            return
    read = read_records(config, starts, None if follow else ends, timeout_s=left(), uncommitted=uncommitted)
    show(islice(read, count))


@dataclass(frozen=True, slots=True)
class Begin:
    """Where reading begins: an offset or a time; without either, the beginning."""

    offset: int | None = None
    time_ms: int | None = None


def begin_of(text: str | None) -> Begin:
    """The place that `--from` names.

    Raises:
        typer.BadParameter: it has no known form.
    """
    if text is None or text == "earliest":
        return Begin()
    if text.isascii() and text.isdigit() and len(text) < 12:
        return Begin(offset=int(text))
    return Begin(time_ms=parse_time(text, "--from"))


def first_offsets(
    topics: KafkaTopics,
    begin: Begin,
    last: int | None,
    partitions: list[TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Where each partition is read from: never before its beginning or after its end."""
    firsts = topics.beginning_offsets(partitions)
    if last is not None:
        return {at: max(firsts[at], ends[at] - last) for at in partitions}
    if begin.time_ms is not None:
        found = topics.offsets_at(partitions, begin.time_ms)
        return {at: found.get(at, ends[at]) for at in partitions}
    offset = begin.offset or 0
    return {at: min(max(firsts[at], offset), ends[at]) for at in partitions}


def serde_of(config: StreamsConfig, name: str, topic: str, *, is_key: bool) -> Any:
    """The serde with this name, with the registry in the configuration."""
    from millstream.registry.registry_settings import RegistrySettings
    from millstream.serdes.registered import bound, reading
    from millstream.serdes.serdes import Serdes

    return reading(bound(Serdes.of(name), RegistrySettings.of(config.given), topic, is_key=is_key))


def produce(
    topic: Topic,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VALUE",
            help="One record for each value. Without any, one record for each line of stdin.",
            show_default=False,
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    key_text: Annotated[str | None, typer.Option("--with-key", "-K", help="The key of all records.")] = None,
    separator: Annotated[
        str | None,
        typer.Option(help="What separates key and value in values and lines, such as ':' or a tab."),
    ] = None,
    lines_are_json: Annotated[
        bool,
        typer.Option(
            "--records",
            help='Read JSON lines, as `tail --json` prints them: {"key": …, "value": …, "headers": [[…, …]], '
            '"partition": …, "timestamp": …}; only the value is required.',
        ),
    ] = False,
    tombstone: Annotated[bool, typer.Option("--tombstone", help="Write one record without a value.")] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="A header of all records. Can be given more than once.",
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Write to this partition. [default: by the key]")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="The records' time. [default: now]")
    ] = None,
    key: Annotated[RecordForm, typer.Option("--key", "-k", help="The format of keys.")] = RecordForm.STRING,
    value: Annotated[
        RecordForm, typer.Option("--value", "-v", help="The format of values.")
    ] = RecordForm.STRING,
    config_file: ConfigFile = None,
    set_: Setting = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write records to a topic, and print where each was written. The topic must exist."""
    from millstream.kafka.records import write_records

    config = cluster_config(config_file, set_, bootstrap_server)
    usual = KafkaRecord(
        topic,
        -1 if partition is None else partition,
        -1,
        None,
        None,
        -1 if timestamp is None else parse_time(timestamp, "--timestamp"),
        tuple(parse_header(each) for each in header or ()),
    )

    def to_bytes(form: RecordForm, text: str | None, *, is_key: bool) -> bytes | None:
        return written(form, text, lambda name: serde_of(config, name, topic, is_key=is_key))

    def record(line: str | None) -> KafkaRecord:
        return record_of_line(
            line,
            usual,
            lambda text: to_bytes(key, text, is_key=True),
            lambda text: to_bytes(value, text, is_key=False),
            key_text=key_text,
            separator=separator,
            is_json=lines_are_json,
            key_form=key,
            value_form=value,
        )

    with topics_of(config) as topics:
        partitions_of(topics, topic)
    given: Iterable[Sequence[str | None]] = [values] if values else pieces(sys.stdin, _MOST, _WITHIN_S)
    total = 0
    for lines in [[None]] if tombstone else given:
        batch = [record(line) for line in lines]
        for each in write_records(config, batch):
            where = {"topic": each.topic, "partition": each.partition, "offset": each.offset}
            typer.echo(
                as_json(where, one_line=True) if json else f"{each.topic}-{each.partition}@{each.offset}"
            )
        total += len(batch)
    if not total:
        typer.echo("nothing to write: stdin was empty", err=True)


def record_of_line(
    line: str | None,
    usual: KafkaRecord,
    key: Callable[[str | None], bytes | None],
    value: Callable[[str | None], bytes | None],
    *,
    key_text: str | None = None,
    separator: str | None = None,
    is_json: bool = False,
    key_form: RecordForm = RecordForm.STRING,
    value_form: RecordForm = RecordForm.STRING,
) -> KafkaRecord:
    """The record in one line. `usual` has defaults for what the line omits; a line of None is a tombstone.

    Raises:
        typer.BadParameter: the line cannot be read as a record.
    """
    if line is not None and is_json:
        return _record_of_json(
            line, usual, key, value, key_text, takes_json(key_form), takes_json(value_form)
        )
    if line is not None and separator is not None:
        before, found, after = line.partition(separator)
        if not found:
            raise typer.BadParameter(f"{line[:80]!r} has no {separator!r}", param_hint="--separator")
        key_text, line = before, after
    return replace(usual, key=key(key_text), value=value(line))


def _record_of_json(
    line: str,
    usual: KafkaRecord,
    key: Callable[[str | None], bytes | None],
    value: Callable[[str | None], bytes | None],
    key_text: str | None,
    key_takes_json: bool,
    value_takes_json: bool,
) -> KafkaRecord:
    try:
        given = json_.loads(line)
    except ValueError as error:
        raise typer.BadParameter(f"{line[:80]!r} is not JSON: {error}", param_hint="--records") from None
    if not isinstance(given, dict):
        raise typer.BadParameter(f"{line[:80]!r} is not a JSON object", param_hint="--records")

    def data_of(part: Any, write: Callable[[str | None], bytes | None], takes_json: bool) -> bytes | None:
        try:
            data = bytes_of(part)
        except ValueError as error:
            raise typer.BadParameter(f"$bytes is not base64: {error}", param_hint="--records") from None
        if data is not None:
            return data
        is_text = part is None or (isinstance(part, str) and not takes_json)
        return write(part if is_text else json_.dumps(part, ensure_ascii=False))

    headers = tuple(
        (str(name), data_of(data, lambda text: None if text is None else text.encode("utf-8"), False))
        for name, data in given.get("headers", ())
    )
    partition, timestamp = given.get("partition", usual.partition), given.get("timestamp", usual.timestamp)
    if not isinstance(partition, int) or not isinstance(timestamp, int):
        raise typer.BadParameter("partition and timestamp must be whole numbers", param_hint="--records")
    return KafkaRecord(
        usual.topic,
        partition,
        -1,
        data_of(given["key"], key, key_takes_json) if "key" in given else key(key_text),
        data_of(given.get("value"), value, value_takes_json),
        timestamp,
        usual.headers + headers,
    )
