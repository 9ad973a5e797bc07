// Writes random.json anew: reads programs from it, builds each with real Kafka Streams, and puts the
// TopologyDescription beside it. A program is a list of operations; each is a list of texts: the word, the
// numbers of the streams, groups or tables it works on, names ("" for none), and what else it takes.
// tests/topology/test_describe_random.py replays the same in Python.
//
//     java -cp 'tests/snapshots/describe/target/dependency/*' tests/snapshots/describe/ReplayAll.java tests/snapshots/describe/random.json
// (see DescribeAll.java for the first command)

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.StringJoiner;
import java.util.regex.Pattern;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.state.KeyValueStore;

@SuppressWarnings({"unchecked", "rawtypes"})
public class ReplayAll {
    final StreamsBuilder builder = new StreamsBuilder();
    final List<KStream> streams = new ArrayList<>();
    final List<KGroupedStream> groups = new ArrayList<>();
    final List<KTable> tables = new ArrayList<>();
    final List<GlobalKTable> globalTables = new ArrayList<>();
    final List<KGroupedTable> tableGroups = new ArrayList<>();

    static Materialized store(final String text) {
        return text.equals("-") ? Materialized.with(Serdes.String(), null) : Materialized.as(text);
    }

    static Consumed consumed(final String name) {
        return name.isEmpty() ? Consumed.with(null, null) : Consumed.as(name);
    }

    void stream(final String[] op) {
        final KStream s = streams.get(Integer.parseInt(op[1]));
        final String name = op[2];
        final boolean named = !name.isEmpty();
        final Named n = named ? Named.as(name) : null;
        switch (op[0]) {
            case "filter": streams.add(named ? s.filter((k, v) -> true, n) : s.filter((k, v) -> true)); break;
            case "map": streams.add(named ? s.map((k, v) -> KeyValue.pair(k, v), n) : s.map((k, v) -> KeyValue.pair(k, v))); break;
            case "map_values": streams.add(named ? s.mapValues(v -> v, n) : s.mapValues(v -> v)); break;
            case "flat_map": streams.add(named ? s.flatMap((k, v) -> List.of(), n) : s.flatMap((k, v) -> List.of())); break;
            case "flat_map_values": streams.add(named ? s.flatMapValues(v -> List.of(), n) : s.flatMapValues(v -> List.of())); break;
            case "select_key": streams.add(named ? s.selectKey((k, v) -> k, n) : s.selectKey((k, v) -> k)); break;
            case "peek": streams.add(named ? s.peek((k, v) -> { }, n) : s.peek((k, v) -> { })); break;
            case "foreach": if (named) { s.foreach((k, v) -> { }, n); } else { s.foreach((k, v) -> { }); } break;
            case "to": if (named) { s.to(op[3], Produced.as(name)); } else { s.to(op[3]); } break;
            case "merge": {
                final KStream other = streams.get(Integer.parseInt(op[3]));
                streams.add(named ? s.merge(other, n) : s.merge(other));
                break;
            }
            case "split": {
                BranchedKStream split = named ? s.split(n) : s.split();
                for (int i = 0; i < Integer.parseInt(op[3]); i++) {
                    split = split.branch((k, v) -> true, Branched.withConsumer(each -> streams.add((KStream) each)));
                }
                if (op[4].equals("default")) {
                    split.defaultBranch(Branched.withConsumer(each -> streams.add((KStream) each)));
                } else {
                    split.noDefaultBranch();
                }
                break;
            }
            case "repartition": {
                Repartitioned how = named ? Repartitioned.as(name) : Repartitioned.with(null, null);
                if (!op[3].isEmpty()) {
                    how = how.withNumberOfPartitions(Integer.parseInt(op[3]));
                }
                streams.add(s.repartition(how));
                break;
            }
            case "group_by": groups.add(named ? s.groupBy((k, v) -> k, Grouped.as(name)) : s.groupBy((k, v) -> k)); break;
            case "group_by_key": groups.add(named ? s.groupByKey(Grouped.as(name)) : s.groupByKey()); break;
            case "to_table": {
                if (op[3].isEmpty()) {
                    tables.add(named ? s.toTable(n) : s.toTable());
                } else {
                    tables.add(named ? s.toTable(n, store(op[3])) : s.toTable(store(op[3])));
                }
                break;
            }
            default: throw new IllegalArgumentException(op[0]);
        }
    }

    void group(final String[] op) {
        final KGroupedStream g = groups.get(Integer.parseInt(op[1]));
        final boolean named = !op[2].isEmpty();
        final Named n = named ? Named.as(op[2]) : null;
        final boolean stored = !op[3].isEmpty();
        switch (op[0]) {
            case "count":
                if (stored) {
                    tables.add(named ? g.count(n, store(op[3])) : g.count(store(op[3])));
                } else {
                    tables.add(named ? g.count(n) : g.count());
                }
                break;
            case "reduce":
                if (stored) {
                    tables.add(named ? g.reduce((a, v) -> v, n, store(op[3])) : g.reduce((a, v) -> v, store(op[3])));
                } else {
                    tables.add(g.reduce((a, v) -> v));
                }
                break;
            case "aggregate":
                if (stored) {
                    tables.add(named ? g.aggregate(() -> "", (k, v, a) -> a, n, store(op[3]))
                        : g.aggregate(() -> "", (k, v, a) -> a, store(op[3])));
                } else {
                    tables.add(g.aggregate(() -> "", (k, v, a) -> a));
                }
                break;
            default: throw new IllegalArgumentException(op[0]);
        }
    }

    void table(final String[] op) {
        final KTable t = tables.get(Integer.parseInt(op[1]));
        final boolean named = !op[2].isEmpty();
        final Named n = named ? Named.as(op[2]) : null;
        switch (op[0]) {
            case "table_filter":
                if (op[3].isEmpty()) {
                    tables.add(named ? t.filter((k, v) -> true, n) : t.filter((k, v) -> true));
                } else {
                    tables.add(named ? t.filter((k, v) -> true, n, store(op[3])) : t.filter((k, v) -> true, store(op[3])));
                }
                break;
            case "table_map_values":
                if (op[3].isEmpty()) {
                    tables.add(named ? t.mapValues(v -> v, n) : t.mapValues(v -> v));
                } else {
                    tables.add(named ? t.mapValues(v -> v, n, store(op[3])) : t.mapValues(v -> v, store(op[3])));
                }
                break;
            case "to_stream": streams.add(named ? t.toStream(n) : t.toStream()); break;
            default: throw new IllegalArgumentException(op[0]);
        }
    }

    void join(final String[] op) {
        final boolean named = !op[2].isEmpty();
        final Named n = named ? Named.as(op[2]) : null;
        final ValueJoiner<Object, Object, Object> both = (v, u) -> v;
        final int one = Integer.parseInt(op[1]);
        switch (op[0]) {
            case "join_table": {
                final KStream s = streams.get(one);
                final KTable t = tables.get(Integer.parseInt(op[3]));
                final Joined how = named ? Joined.as(op[2]) : Joined.with(null, null, null);
                streams.add(op[4].equals("join") ? s.join(t, both, how) : s.leftJoin(t, both, how));
                break;
            }
            case "join_global_table": {
                final KStream s = streams.get(one);
                final GlobalKTable t = globalTables.get(Integer.parseInt(op[3]));
                final KeyValueMapper<Object, Object, Object> key = (k, v) -> k;
                if (op[4].equals("join")) {
                    streams.add(named ? s.join(t, key, both, n) : s.join(t, key, both));
                } else {
                    streams.add(named ? s.leftJoin(t, key, both, n) : s.leftJoin(t, key, both));
                }
                break;
            }
            case "join_stream": {
                final KStream s = streams.get(one);
                final KStream other = streams.get(Integer.parseInt(op[3]));
                StreamJoined how = op[5].isEmpty() ? StreamJoined.with(null, null, null) : StreamJoined.as(op[5]);
                if (named) {
                    how = how.withName(op[2]);
                }
                final JoinWindows five = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(5));
                switch (op[4]) {
                    case "join": streams.add(s.join(other, both, five, how)); break;
                    case "left_join": streams.add(s.leftJoin(other, both, five, how)); break;
                    default: streams.add(s.outerJoin(other, both, five, how));
                }
                break;
            }
            case "table_join": {
                final KTable t = tables.get(one);
                final KTable other = tables.get(Integer.parseInt(op[4]));
                final Materialized store = op[3].isEmpty() ? null : store(op[3]);
                switch (op[5]) {
                    case "join":
                        tables.add(store == null ? (named ? t.join(other, both, n) : t.join(other, both))
                            : (named ? t.join(other, both, n, store) : t.join(other, both, store)));
                        break;
                    case "left_join":
                        tables.add(store == null ? (named ? t.leftJoin(other, both, n) : t.leftJoin(other, both))
                            : (named ? t.leftJoin(other, both, n, store) : t.leftJoin(other, both, store)));
                        break;
                    default:
                        tables.add(store == null ? (named ? t.outerJoin(other, both, n) : t.outerJoin(other, both))
                            : (named ? t.outerJoin(other, both, n, store) : t.outerJoin(other, both, store)));
                }
                break;
            }
            case "table_group_by": {
                final KTable t = tables.get(one);
                final KeyValueMapper<Object, Object, KeyValue<Object, Object>> key = (k, v) -> KeyValue.pair(k, v);
                tableGroups.add(named ? t.groupBy(key, Grouped.as(op[2])) : t.groupBy(key));
                break;
            }
            case "table_count": {
                final KGroupedTable g = tableGroups.get(one);
                if (op[3].isEmpty()) {
                    tables.add(named ? g.count(n) : g.count());
                } else {
                    tables.add(named ? g.count(n, store(op[3])) : g.count(store(op[3])));
                }
                break;
            }
            case "table_reduce": {
                final KGroupedTable g = tableGroups.get(one);
                final Reducer<Object> last = (a, v) -> v;
                if (op[3].isEmpty()) {
                    tables.add(g.reduce(last, last));
                } else {
                    tables.add(named ? g.reduce(last, last, n, store(op[3])) : g.reduce(last, last, store(op[3])));
                }
                break;
            }
            default: throw new IllegalArgumentException(op[0]);
        }
    }

    void apply(final String[] op) {
        switch (op[0]) {
            case "global_table":
                globalTables.add(builder.globalTable(op[2], consumed(op[1])));
                break;
            case "join_table": case "join_global_table": case "join_stream": case "table_join":
            case "table_group_by": case "table_count": case "table_reduce":
                join(op);
                break;
            case "stream":
                streams.add(builder.stream(Arrays.asList(op).subList(2, op.length), consumed(op[1])));
                break;
            case "pattern":
                streams.add(builder.stream(Pattern.compile(op[2]), consumed(op[1])));
                break;
            case "table":
                tables.add(op[2].isEmpty() ? builder.table(op[3], consumed(op[1])) : builder.table(op[3], consumed(op[1]), store(op[2])));
                break;
            case "count": case "reduce": case "aggregate":
                group(op);
                break;
            case "table_filter": case "table_map_values": case "to_stream":
                table(op);
                break;
            default:
                stream(op);
        }
    }

    public static void main(final String[] args) throws Exception {
        final ObjectMapper json = new ObjectMapper();
        final JsonNode all = json.readTree(new File(args[0]));
        for (final JsonNode each : all) {
            final ReplayAll replay = new ReplayAll();
            for (final JsonNode op : each.get("program")) {
                replay.apply(json.treeToValue(op, String[].class));
            }
            ((ObjectNode) each).put("text", replay.builder.build().describe().toString());
        }
        final StringJoiner lines = new StringJoiner(",\n", "[\n", "\n]\n"); // one program per line, for diffs
        for (final JsonNode each : all) {
            lines.add(json.writeValueAsString(each));
        }
        Files.writeString(Path.of(args[0]), lines.toString());
    }
}
