"""Programs as data, so that Kafka Streams can be given the same ones (ReplayAll.java, by the snapshots).

A program is a list of operations; an operation a list of texts: the word, the number of what it works on,
names ("" for none), and what else it takes.
"""

import random
import re
from datetime import timedelta
from itertools import count

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.join_options import StreamJoined
from millstream.dsl.options import Branched, Consumed, Materialized, Repartitioned
from millstream.serdes.serdes import Serdes
from millstream.topology.windows import JoinWindows

Operation = list[str]


def same(value):
    return value


def both(left, right):
    return left


FIVE = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))


def replay(program: list[Operation]) -> StreamsBuilder:
    """A builder to which the program was told."""
    builder = StreamsBuilder()
    streams, groups, tables = [], [], []
    global_tables, table_groups = [], []

    def store(text):
        if not text:
            return None
        return Materialized.with_(Serdes.string()) if text == "-" else Materialized.as_(text)

    for word, *rest in program:
        match word:
            case "stream":
                streams.append(builder.stream(rest[1:], Consumed(name=rest[0] or None)))
            case "pattern":
                streams.append(builder.stream(re.compile(rest[1]), Consumed(name=rest[0] or None)))
            case "table":
                tables.append(builder.table(rest[2], Consumed(name=rest[0] or None), store(rest[1])))
            case "to":
                streams[int(rest[0])].to(rest[2], named=rest[1] or None)
            case "merge":
                streams.append(streams[int(rest[0])].merge(streams[int(rest[2])], named=rest[1] or None))
            case "split":
                split = streams[int(rest[0])].split(named=rest[1] or None)
                for _ in range(int(rest[2])):
                    split.branch(same, Branched.with_consumer(streams.append))
                if rest[3] == "default":
                    split.default_branch(Branched.with_consumer(streams.append))
                else:
                    split.no_default_branch()
            case "repartition":
                how = Repartitioned(
                    name=rest[1] or None, number_of_partitions=int(rest[2]) if rest[2] else None
                )
                streams.append(streams[int(rest[0])].repartition(how))
            case "group_by":
                groups.append(streams[int(rest[0])].group_by(same, named=rest[1] or None))
            case "group_by_key":
                groups.append(streams[int(rest[0])].group_by_key(named=rest[1] or None))
            case "to_table":
                tables.append(streams[int(rest[0])].to_table(store(rest[2]), named=rest[1] or None))
            case "count":
                tables.append(groups[int(rest[0])].count(store(rest[2]), named=rest[1] or None))
            case "reduce":
                tables.append(groups[int(rest[0])].reduce(same, store(rest[2]), named=rest[1] or None))
            case "aggregate":
                tables.append(groups[int(rest[0])].aggregate(same, store(rest[2]), named=rest[1] or None))
            case "table_filter":
                tables.append(tables[int(rest[0])].filter(same, store(rest[2]), named=rest[1] or None))
            case "table_map_values":
                tables.append(tables[int(rest[0])].map_values(same, store(rest[2]), named=rest[1] or None))
            case "to_stream":
                streams.append(tables[int(rest[0])].to_stream(named=rest[1] or None))
            case "global_table":
                global_tables.append(builder.global_table(rest[1], Consumed(name=rest[0] or None)))
            case "table_group_by":
                table_groups.append(tables[int(rest[0])].group_by(same, named=rest[1] or None))
            case "table_count":
                tables.append(table_groups[int(rest[0])].count(store(rest[2]), named=rest[1] or None))
            case "table_reduce":
                grouped = table_groups[int(rest[0])]
                tables.append(grouped.reduce(both, both, store(rest[2]), named=rest[1] or None))
            case "table_join":
                join = getattr(tables[int(rest[0])], rest[4])
                tables.append(join(tables[int(rest[3])], both, store(rest[2]), named=rest[1] or None))
            case "join_table":
                join = getattr(streams[int(rest[0])], rest[3])
                streams.append(join(tables[int(rest[2])], both, named=rest[1] or None))
            case "join_global_table":
                join = getattr(streams[int(rest[0])], rest[3])
                streams.append(join(global_tables[int(rest[2])], same, both, named=rest[1] or None))
            case "join_stream":
                join = getattr(streams[int(rest[0])], rest[3])
                options = StreamJoined(name=rest[1] or None, store_name=rest[4] or None)
                streams.append(join(streams[int(rest[2])], both, FIVE, options))
            case _:
                result = getattr(streams[int(rest[0])], word)(same, named=rest[1] or None)
                if result is not None:
                    streams.append(result)
    return builder


STATELESS = ["filter", "map", "map_values", "flat_map", "flat_map_values", "select_key", "peek", "foreach"]
ON_STREAMS = [*STATELESS, "to", "merge", "split", "repartition", "group_by", "group_by_key", "to_table"]
ON_GROUPS = ["count", "reduce", "aggregate"]
ON_TABLES = ["table_filter", "table_map_values", "to_stream"]
JOINS = ["join", "left_join", "outer_join"]


def random_program(generator: random.Random, size: int, *, joins: bool = False) -> list[Operation]:
    """A program of about so many operations, which Kafka Streams accepts.

    With joins, it does not accept all of them: it adds a join before the store of its table at times.
    """
    numbers = count()
    topics = ["a", "b", "c", "d"]
    program: list[Operation] = []
    streams = groups = tables = patterns = global_tables = table_groups = 0

    def name(likely=0.3):
        return f"n{next(numbers)}-" if generator.random() < likely else ""

    def pick(some):
        # Rather a late one: programs are long more often than wide.
        return str(max(generator.randrange(some), generator.randrange(some)))

    while len(program) < size:
        kinds = ["source"] + ["stream"] * (8 * bool(streams)) + ["group"] * (4 * bool(groups))
        kinds += ["table"] * (3 * bool(tables))
        if joins:
            kinds += ["join"] * (6 * bool(streams)) + ["table group"] * (2 * bool(table_groups))
            kinds += ["table join"] * (3 * bool(tables)) + ["grouped table"] * (2 * bool(tables))
        kind = generator.choice(kinds)
        if kind == "source":
            word = generator.choice(["stream", "stream", "streams", "pattern", "table"])
            if word == "stream":
                program.append(["stream", name(), generator.choice(topics)])
                streams += 1
            elif word == "streams":
                program.append(["stream", name(), *generator.sample(["x", "yy", "zzz"], 3)])
                streams += 1
            elif word == "pattern":
                program.append(["pattern", name(), f"p{generator.randrange(3)}-.*"])
                streams += 1
                patterns += 1
            else:
                store = generator.choice(["", "-", f"s{next(numbers)}"])
                program.append(["table", name(), store, f"t{next(numbers)}"])
                tables += 1
        elif kind == "stream":
            word = generator.choice(ON_STREAMS)
            operation = [word, pick(streams), name()]
            if word == "to":
                operation.append(f"out-{next(numbers)}")
            elif word == "merge":
                operation.append(pick(streams))
            elif word == "split":
                branches = generator.randint(1, 4)
                default = generator.choice(["default", "none"])
                operation += [str(branches), default]
                streams += branches + (default == "default")
            elif word == "repartition":
                operation.append(generator.choice(["", "", "3"]))
            elif word == "to_table":
                operation.append(generator.choice(["", "-", f"s{next(numbers)}"]))
                tables += 1
            program.append(operation)
            groups += word in ("group_by", "group_by_key")
            streams += word in (*STATELESS[:-1], "merge", "repartition")
        elif kind == "join":
            word = generator.choice(["join_table", "join_stream", "join_global_table"])
            if word == "join_table" and tables:
                how = generator.choice(JOINS[:2])
                program.append([word, pick(streams), name(), pick(tables), how])
                streams += 1
            elif word == "join_stream":
                stored = generator.choice(["", f"s{next(numbers)}"])
                program.append([word, pick(streams), name(), pick(streams), generator.choice(JOINS), stored])
                streams += 1
            elif word == "join_global_table":
                if not global_tables or generator.random() < 0.3:
                    program.append(["global_table", name(), f"g{next(numbers)}"])
                    global_tables += 1
                how = generator.choice(JOINS[:2])
                program.append([word, pick(streams), name(), pick(global_tables), how])
                streams += 1
        elif kind == "table join":
            store = generator.choice(["", "-", f"s{next(numbers)}"])
            program.append(["table_join", pick(tables), name(), store, pick(tables), generator.choice(JOINS)])
            tables += 1
        elif kind == "grouped table":
            program.append(["table_group_by", pick(tables), name()])
            table_groups += 1
        elif kind == "table group":
            word = generator.choice(["table_count", "table_reduce"])
            store = generator.choice(["", "-", f"s{next(numbers)}"])
            given = name() if word == "table_count" or store else ""
            program.append([word, pick(table_groups), given, store])
            tables += 1
        elif kind == "group":
            word = generator.choice(ON_GROUPS)
            store = generator.choice(["", "-", f"s{next(numbers)}"])
            # Kafka Streams takes a name for these two only together with a Materialized.
            given = name() if word == "count" or store else ""
            program.append([word, pick(groups), given, store])
            tables += 1
        else:
            word = generator.choice(ON_TABLES)
            program.append([word, pick(tables), name()])
            if word == "to_stream":
                streams += 1
            else:
                program[-1].append(generator.choice(["", "-", f"s{next(numbers)}"]))
                tables += 1
    return program
