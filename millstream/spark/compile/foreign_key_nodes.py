"""Joins of two tables by a foreign key: each row of the left one names a row of the right one (KIP-213).

As in Kafka Streams, there are two topics between the tables, so that each is partitioned by its own keys:

- `ForeignKeySubscribe` notifies the right side, under the foreign key, of the row that refers to it and its
  value.
- `ForeignKeyLookup` keeps the references to each key. It answers with the right row when it is notified, and
  when that row changes (in Kafka Streams, the latter is a separate step, `ForeignKeyChanges`).
- `ForeignKeyJoin` joins an answer with the left row, if that still has the value that the answer refers to.

The left table is kept once, for the first and for the last of these. The bytes are those of Kafka Streams:

    request   {0x01, or 0x81 where there is no hash}{what to do}{hash of the left value, 16 bytes}{left key}
              {partition of the left row, 4 bytes}
    answer    {0x00, or 0x80 where there is no hash}{hash of the left value, 16 bytes}{right value}

An answer goes to the partition that the request names, however the left table is partitioned.

Source: org.apache.kafka.streams.kstream.internals.foreignkeyjoin.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.errors import TopologyException
from millstream.physical.kernel_joins import ForeignKey
from millstream.serdes.serde import Serde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.applying import add_result, apply
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import Flow, Lane
from millstream.spark.compile.join_nodes import join_values, wait_for_sides
from millstream.spark.compile.kernel_operators import JoinColumns
from millstream.spark.compile.record_failures import computable, computed, of_before, writable
from millstream.spark.compile.sink import Output
from millstream.spark.compile.trace import as_column
from millstream.spark.jvm.java_names import kernel_column
from millstream.topology.nodes import (
    ForeignKeyChanges,
    ForeignKeyJoin,
    ForeignKeyLookup,
    ForeignKeySubscribe,
    JoinType,
    Node,
    Repartition,
)

__all__ = [
    "joined",
    "visit_foreign_key_changes",
    "visit_foreign_key_join",
    "visit_foreign_key_lookup",
    "visit_foreign_key_subscribe",
]

_FORGET, _FORGET_AND_ANSWER, _ANSWER, _ANSWER_IF_FOUND = (bytes([code]) for code in range(4))
"""What to do with a notification. Source: SubscriptionWrapper.Instruction."""
_REQUEST, _ANSWERED = (bytes([0x01]), bytes([0x81])), (bytes([0x00]), bytes([0x80]))
"""How requests and answers begin: their versions; with a hash, and without one."""
_HASH, _PARTITION = 16, 4
"""Sizes in bytes."""


# --- before the operator -----------------------------------------------------------------------------------


def visit_foreign_key_subscribe(building: Building, node: ForeignKeySubscribe) -> None:
    wait_for_sides(building, node, node.parents[0])


def visit_foreign_key_changes(building: Building, node: ForeignKeyChanges) -> None:
    building.take(node.parents[0])  # the lookup hears of them


def visit_foreign_key_join(building: Building, node: ForeignKeyJoin) -> None:
    answers, left = node.parents
    (side,) = wait_for_sides(building, node, left)
    flow = building.flow
    key_serde, _ = _serdes_of(building, left, flow, flow.lanes[side])
    _wait_for_answers(building, node, answers, key_serde)


def visit_foreign_key_lookup(building: Building, node: ForeignKeyLookup) -> None:
    subscription, right = node.parents
    (side,) = wait_for_sides(building, node, right)
    flow = building.flow
    key_serde, value_serde = _serdes_of(building, right, flow, flow.lanes[side])
    for topic in (subscription, _topic_behind(building, node)):
        assert isinstance(topic, Repartition)
        building.context.repartition_serdes[topic] = key_serde, value_serde  # the right table's, for the left
    flow, lane, _ = building.take(subscription)
    content = F.col(lane.value)
    read = serde_columns.from_bytes(key_serde, F.col(lane.key), F.lit(f"{node.name}: a foreign key"))
    key = flow.with_column("k", read)
    hashed = F.substring(content, 1, 1) == F.lit(_REQUEST[0])
    behind = _rest(content, 3, hashed)
    name = flow.with_column("k", F.substring(behind, F.lit(1), F.octet_length(behind) - _PARTITION))
    stays = F.substring(content, 2, 1).isin(F.lit(_ANSWER), F.lit(_ANSWER_IF_FOUND))
    building.carried[node] = name, flow.with_column("f", stays)
    building.wait(node, flow, replace(lane, key=key, key_serde=key_serde))


def _wait_for_answers(building: Building, node: ForeignKeyJoin, answers: Node, key_serde: Serde) -> None:
    flow, lane, _ = building.take(answers)
    where = F.lit(f"{node.name}: the key of an answer")
    key = flow.with_column("k", serde_columns.from_bytes(key_serde, F.col(lane.key), where))
    building.wait(node, flow, replace(lane, key=key, key_serde=key_serde))


def _serdes_of(building: Building, table: Node, flow: Flow, lane: Lane) -> tuple[Serde, Serde]:
    """The serdes of a table's keys and values."""
    store = table.store
    key = building.key_serde_of(table, lane.key_serde, flow.type_of(lane.key))
    value = building.settle(
        None if store is None else store.value_serde,
        lane.value_serde,
        building.context.default_value_serde,
        flow.type_of(lane.value),
    )
    return key, value


def _rest(content: Column, place: int, hashed: Column) -> Column:
    """The bytes after the hash that begins at a position, counted from 1, or after a missing hash."""
    size = F.octet_length(content)
    behind = F.lit(place + _HASH)
    return F.when(hashed, F.substring(content, behind, size)).otherwise(
        F.substring(content, F.lit(place), size)
    )


# --- behind the operator -----------------------------------------------------------------------------------


def joined(building: Building, node: ForeignKey, flow: Flow, found: JoinColumns) -> None:
    """Handle the operator's results for a part of a join."""
    match node:
        case ForeignKeySubscribe():
            _send_changes(building, node, flow, found)
        case ForeignKeyLookup():
            _answer(building, node, flow, found)
        case ForeignKeyJoin():
            lane = _rows(building, node, flow, found)
            if node in building.remembering:  # its rows are kept, so that updates carry the old value
                building.wait(building.plan.kept[node], flow, lane)
                return
            building.put(node, flow, lane)


def _send_changes(building: Building, node: ForeignKeySubscribe, flow: Flow, found: JoinColumns) -> None:
    """Send each change of a left row to its foreign key, and to its previous one."""
    assert found.old_left is not None
    topic = _topic_behind(building, node)
    key_serde, _ = _right_serdes(building, node, topic)
    lane = Lane(found.key, found.left, found.flag, found.key_serde)

    def foreign_key(value: str) -> Column:
        key = as_column(apply(node, node.extractor, flow, replace(lane, value=value)))
        return F.when(F.col(value).isNotNull(), key)

    lane, (now,) = computable(building, node, node.extractor, flow, lane, foreign_key(found.left))
    (before,) = of_before(building, flow, lane, foreign_key(found.old_left))
    keys = [add_result(node, node.extractor, flow, lane, "k", key) for key in (now, before)]
    new, old = (
        serde_columns.to_bytes(key_serde, F.col(key), flow.type_of(key), f"{node.name}: the foreign key")
        for key in keys
    )
    there = F.col(found.left).isNotNull(), F.col(found.old_left).isNotNull()
    new, old = (F.col(flow.with_column("k", flow.own(lane, key))) for key in (new, old))
    hashed = _hash(building, node.parents[0], flow, found, found.left)
    key_type = flow.type_of(found.key)
    name = serde_columns.to_bytes(found.key_serde, F.col(found.key), key_type, f"{node.name}: the key")
    content = [flow.with_column("b", flow.own(lane, each)) for each in (hashed, name)]
    nothing = F.array().cast("array<struct<key: binary, code: binary>>")
    asked = F.coalesce(_asked(node.type, (there[0], new), (there[1], old)), nothing)
    lane, element = flow.explode(lane, asked)
    hashed, name = (F.col(each) for each in content)
    # Behind an operator rows have no partition of a topic; a task's number is that of all its partitions.
    partition = F.unhex(F.lpad(F.hex(F.spark_partition_id()), 2 * _PARTITION, "0"))
    value = F.concat(_framed(_REQUEST, hashed, F.col(element)["code"], name), partition)
    key = flow.with_column("k", F.col(element)["key"])
    _send(building, node, topic, flow, lane, F.col(key), F.col(flow.with_column("v", value)))


def _asked(type: JoinType, new: tuple[Column, Column], old: tuple[Column, Column]) -> Column:
    """The notifications for a change: an array of structs `key` and `code`.

    Args:
        new, old: for each value, whether it exists, and its foreign key in bytes.
    """

    def notification(key: Column, code: bytes) -> Column:
        return F.struct(key.alias("key"), F.lit(code).alias("code"))

    (is_there, key), (was_there, before) = new, old
    moved = before.isNotNull() & ~key.eqNullSafe(before)
    if type is JoinType.LEFT:  # every change is answered, so that there is a row for it
        both = F.array(notification(before, _FORGET), notification(key, _ANSWER))
        return F.when(moved, both).when(is_there | was_there, F.array(notification(key, _ANSWER)))
    return (
        F.when(key.isNotNull() & moved, F.array(notification(before, _FORGET), notification(key, _ANSWER)))
        .when(key.isNotNull(), F.array(notification(key, _ANSWER_IF_FOUND)))
        .when(moved, F.array(notification(before, _FORGET_AND_ANSWER)))
    )


def _answer(building: Building, node: ForeignKeyLookup, flow: Flow, found: JoinColumns) -> None:
    """Send the right row to each left row that refers to it."""
    topic = _topic_behind(building, node)
    _, value_serde = building.context.repartition_serdes[topic]
    name, _ = building.carried[node]
    request, row = F.col(found.left), F.col(found.right)
    code = F.substring(request, 2, 1)
    changed = F.coalesce(F.col(found.side) == 1, F.lit(False))
    asked = code.isin(F.lit(_FORGET_AND_ANSWER), F.lit(_ANSWER))
    wanted = changed | asked | ((code == F.lit(_ANSWER_IF_FOUND)) & row.isNotNull())
    if found.old_right is not None:  # of a filter: the removal of a row that was never there is not reported
        wanted &= ~changed | row.isNotNull() | F.col(found.old_right).isNotNull()
    lane = flow.narrow(Lane(name, found.left, found.flag), wanted, alone=False)
    what = f"{node.name}: the value of the right table"
    content = serde_columns.to_bytes(value_serde, row, flow.type_of(found.right), what)
    content = F.when(changed | (code != F.lit(_FORGET_AND_ANSWER)), content)
    hashed = F.when(F.substring(request, 1, 1) == F.lit(_REQUEST[0]), F.substring(request, 3, _HASH))
    value = _framed(_ANSWERED, hashed, F.lit(b""), F.coalesce(content, F.lit(b"")))
    sent = F.col(flow.with_column("v", flow.own(lane, value)))
    partition = F.conv(F.hex(F.substring(request, -_PARTITION, _PARTITION)), 16, 10)
    _send(building, node, topic, flow, lane, F.col(name), sent, partition)


def _rows(building: Building, node: ForeignKeyJoin, flow: Flow, found: JoinColumns) -> Lane:
    """The rows of the join, from the answers that refer to a row's current value."""
    answers, table = node.parents
    assert isinstance(answers, Repartition)
    _, value_serde = _right_serdes(building, node, answers)
    answer, left = F.col(found.left), F.col(found.right)
    with_hash = F.substring(answer, 1, 1) == F.lit(_ANSWERED[0])
    asked = F.when(with_hash, F.substring(answer, 2, _HASH))
    now = _hash(building, table, flow, found, found.right)
    lane = flow.narrow(
        Lane(found.key, found.right, found.flag, found.key_serde), asked.eqNullSafe(now), alone=False
    )
    content = _rest(answer, 2, with_hash)
    content = F.when(F.octet_length(content) > 0, content)
    where = F.lit(f"{node.name}: the value of the right table")
    right = F.col(
        flow.with_column("v", flow.own(lane, serde_columns.from_bytes(value_serde, content, where)))
    )
    is_row = right.isNotNull()
    if node.type is JoinType.LEFT:
        is_row |= left.isNotNull()
    made = F.when(is_row, join_values(node, flow, lane, left, right))
    lane, value = computed(building, node, node.joiner, flow, lane, "v", made)
    return replace(lane, value=value)


def _hash(building: Building, table: Node, flow: Flow, found: JoinColumns, value: str) -> Column:
    """A hash of a left value; NULL if there is no value."""
    lane = Lane(found.key, value, None, found.key_serde, found.table_serde)
    _, serde = _serdes_of(building, table, flow, lane)
    content = serde_columns.to_bytes(serde, F.col(value), flow.type_of(value), f"{table.name}: the value")
    return kernel_column("InternalBytes", "hash", content)


def _framed(begins: tuple[bytes, bytes], hashed: Column, code: Column, content: Column) -> Column:
    first = F.when(hashed.isNull(), F.lit(begins[1])).otherwise(F.lit(begins[0]))
    return F.concat(first, code, F.coalesce(hashed, F.lit(b"")), content)


# --- the topics between ------------------------------------------------------------------------------------


def _topic_behind(building: Building, node: ForeignKeySubscribe | ForeignKeyLookup) -> Repartition:
    """The topic that a part of a join writes to."""
    return next(
        each for each in building.pipeline.nodes if isinstance(each, Repartition) and node in each.parents
    )


def _right_serdes(building: Building, node: Node, topic: Repartition) -> tuple[Serde, Serde]:
    """The serdes of the right table: as settled where it is read, or else as declared.

    Raises:
        TopologyException: neither.
    """
    if (settled := building.context.repartition_serdes.get(topic)) is not None:
        return settled
    if topic.key_serde is None or topic.value_serde is None:
        raise TopologyException(
            f"{node.name}: each table of this join is also the right side of a join with the other one, so "
            "the serdes of the right one have to be given: builder.table(topic, Consumed.with_(...)), or of "
            "a result Materialized.with_(...)"
        )
    return topic.key_serde, topic.value_serde


def _send(
    building: Building,
    node: Node,
    topic: Repartition,
    flow: Flow,
    lane: Lane,
    key: Column,
    value: Column,
    partition: Column | None = None,
) -> None:
    where = building.internal(topic.topic)
    lane, key, value = writable(building, node, flow, lane, key, value, where)
    output = Output(topic=where, key=key, value=value, partition=partition, headers=True, letter=node.name)
    building.pin(node, flow, lane, output)
