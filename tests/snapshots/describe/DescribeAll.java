// Writes the golden texts of this folder with real Kafka Streams: one file per program, each the
// TopologyDescription of what is built here. tests/topology/test_describe_snapshots.py has the same programs,
// by the same names, in Python, and compares byte for byte.
//
// To write them anew (Java 17 or later, Maven; the first command fetches Kafka Streams 4.3.1):
//     mvn -q -f tests/snapshots/describe/pom.xml dependency:copy-dependencies
//     java -cp 'tests/snapshots/describe/target/dependency/*' tests/snapshots/describe/DescribeAll.java tests/snapshots/describe
// Remove tests/snapshots/describe/target afterwards. Commit a changed text only if you understand what changed it.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.regex.Pattern;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKeySupplier;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

public class DescribeAll {
    static final JoinWindows FIVE = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(5));

    /** A function with a text of its own, so that the snapshot does not hold an address. */
    static class ByWord implements TopicNameExtractor<String, String> {
        @Override
        public String extract(final String key, final String value, final RecordContext context) {
            return value;
        }

        @Override
        public String toString() {
            return "by word";
        }
    }

    /** A processor that does nothing. */
    static class Nothing implements Processor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) { }
    }

    static final ProcessorSupplier<String, String, String, String> NOTHING = Nothing::new;

    static final FixedKeyProcessorSupplier<String, String, String> VALUES = () ->
        new ContextualFixedKeyProcessor<String, String, String>() {
            @Override
            public void process(final FixedKeyRecord<String, String> record) { }
        };

    static final ValueTransformerWithKeySupplier<String, String, String> SAME = () ->
        new ValueTransformerWithKey<String, String, String>() {
            @Override
            public void init(final ProcessorContext context) { }

            @Override
            public String transform(final String key, final String value) {
                return value;
            }

            @Override
            public void close() { }
        };

    /** One that fills a store of its own. */
    static final class Fill implements Processor<String, String, Void, Void> {
        @Override
        public void process(final Record<String, String> record) { }
    }

    static StoreBuilder<KeyValueStore<String, String>> builder(final String name) {
        return Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), Serdes.String(), Serdes.String());
    }

    /** A supplier that brings stores with it. */
    static ProcessorSupplier<String, String, String, String> bringing(final String... names) {
        return new ProcessorSupplier<>() {
            @Override
            public Processor<String, String, String, String> get() {
                return new Nothing();
            }

            @Override
            public Set<StoreBuilder<?>> stores() {
                final Set<StoreBuilder<?>> all = new java.util.LinkedHashSet<>();
                for (final String name : names) {
                    all.add(builder(name));
                }
                return all;
            }
        };
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> store(final String name) {
        return Materialized.as(name);
    }

    static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> longs(final String name) {
        return Materialized.as(name);
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> unnamed() {
        return Materialized.with(Serdes.String(), Serdes.String());
    }

    static Map<String, Consumer<StreamsBuilder>> programs() {
        final Map<String, Consumer<StreamsBuilder>> all = new TreeMap<>();

        all.put("word_count", b -> b.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(longs("counts"))
            .toStream()
            .to("word-counts", Produced.with(Serdes.String(), Serdes.Long())));

        all.put("word_count_unnamed", b -> b.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .to("word-counts"));

        all.put("word_count_all_named", b -> b.<String, String>stream("lines", Consumed.as("read"))
            .flatMapValues(line -> Arrays.asList(line.split(" ")), Named.as("words"))
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Named.as("count"), longs("counts"))
            .toStream(Named.as("changes"))
            .to("word-counts", Produced.<String, Long>as("write")));

        all.put("stateless_all", b -> {
            b.<String, String>stream("in")
                .filter((k, v) -> true)
                .filterNot((k, v) -> false)
                .map((k, v) -> KeyValue.pair(k, v))
                .mapValues(v -> v)
                .mapValues((k, v) -> v)
                .flatMap((k, v) -> List.of(KeyValue.pair(k, v)))
                .flatMapValues(v -> List.of(v))
                .selectKey((k, v) -> k)
                .peek((k, v) -> { })
                .foreach((k, v) -> { });
        });

        all.put("stateless_all_named", b -> {
            b.<String, String>stream("in", Consumed.as("source"))
                .filter((k, v) -> true, Named.as("filter"))
                .filterNot((k, v) -> false, Named.as("filter-not"))
                .map((k, v) -> KeyValue.pair(k, v), Named.as("map"))
                .mapValues(v -> v, Named.as("map-values"))
                .flatMap((k, v) -> List.of(KeyValue.pair(k, v)), Named.as("flat-map"))
                .flatMapValues(v -> List.of(v), Named.as("flat-map-values"))
                .selectKey((k, v) -> k, Named.as("select-key"))
                .peek((k, v) -> { }, Named.as("peek"))
                .foreach((k, v) -> { }, Named.as("foreach"));
            b.stream("other").to("out");
        });

        all.put("printed", b -> {
            final KStream<String, String> in = b.stream("in");
            in.print(Printed.toSysOut());
            in.mapValues(v -> v).print(Printed.<String, String>toSysOut().withLabel("label").withName("printer"));
            in.filter((k, v) -> true).to("out");
        });

        all.put("several_sinks", b -> {
            final KStream<String, String> in = b.stream("in");
            in.to("a");
            in.filter((k, v) -> true).to("b", Produced.as("to-b"));
            in.mapValues(v -> v).mapValues(v -> v).to("c");
            in.to("d");
        });

        all.put("topics_by_function", b -> b.<String, String>stream("in").to(new ByWord()));

        all.put("several_topics", b -> b.stream(Arrays.asList("orders", "payments", "returns", "a", "b", "c"))
            .to("all"));

        all.put("pattern", b -> {
            b.stream(Pattern.compile("orders-.*")).to("all-orders");
            b.stream(Pattern.compile("payments-[0-9]+"), Consumed.as("payments")).to("all-payments");
        });

        all.put("independent_subtopologies", b -> {
            b.stream("a").to("out-a");
            b.stream("b").filter((k, v) -> true).to("out-b");
            b.stream("c").mapValues(v -> v).to("out-c");
        });

        all.put("merge", b -> {
            final KStream<String, String> a = b.stream("a");
            final KStream<String, String> c = b.stream("c");
            final KStream<String, String> d = b.stream("d");
            a.merge(c).merge(d.filter((k, v) -> true), Named.as("all")).to("out");
        });

        all.put("merge_with_itself", b -> {
            final KStream<String, String> a = b.stream("a");
            a.merge(a).to("out");
            a.filter((k, v) -> true).merge(a.filterNot((k, v) -> true)).to("out");
        });

        all.put("merge_then_group", b -> {
            final KStream<String, String> a = b.<String, String>stream("a").selectKey((k, v) -> v);
            final KStream<String, String> c = b.stream("c");
            c.merge(a).groupByKey().count(longs("counts"));
        });

        all.put("split_unnamed", b -> {
            final Map<String, KStream<String, String>> branches = b.<String, String>stream("in")
                .split()
                .branch((k, v) -> true)
                .branch((k, v) -> false)
                .defaultBranch();
            branches.get("KSTREAM-BRANCH-00000000011").to("one");
            branches.get("KSTREAM-BRANCH-00000000012").to("two");
            branches.get("KSTREAM-BRANCH-00000000010").to("rest");
        });

        all.put("split_named", b -> {
            final Map<String, KStream<String, String>> branches = b.<String, String>stream("in")
                .split(Named.as("route-"))
                .branch((k, v) -> true, Branched.as("big"))
                .branch((k, v) -> false, Branched.withConsumer(s -> s.to("small")))
                .branch((k, v) -> false, Branched.withFunction(s -> s.mapValues(v -> v), "odd"))
                .defaultBranch(Branched.as("rest"));
            branches.get("route-big").to("big");
            branches.get("route-odd").to("odd");
            branches.get("route-rest").to("rest");
        });

        all.put("split_no_default", b -> {
            final Map<String, KStream<String, String>> branches = b.<String, String>stream("in")
                .selectKey((k, v) -> v)
                .split()
                .branch((k, v) -> true, Branched.as("-yes"))
                .noDefaultBranch();
            branches.get("KSTREAM-BRANCH-0000000002-yes").groupByKey().count();
        });

        all.put("repartition_unnamed", b -> b.<String, String>stream("in").repartition().mapValues(v -> v).to("out"));

        all.put("repartition_named", b -> b.<String, String>stream("in")
            .selectKey((k, v) -> v)
            .repartition(Repartitioned.<String, String>as("by-user").withNumberOfPartitions(7))
            .groupByKey()
            .count(longs("counts"))
            .toStream()
            .to("out"));

        all.put("repartition_chain", b -> {
            final KStream<String, String> in = b.stream("in");
            in.repartition(Repartitioned.as("one")).repartition(Repartitioned.as("two-repartition")).to("out");
            in.repartition().merge(in).to("both");
        });

        all.put("aggregations", b -> {
            final KGroupedStream<String, String> grouped = b.<String, String>stream("in").groupByKey();
            grouped.count();
            grouped.count(longs("counts"));
            grouped.count(Named.as("count-named"));
            grouped.count(Materialized.with(Serdes.String(), Serdes.Long()));
            grouped.count(Named.as("count-both"), Materialized.with(Serdes.String(), Serdes.Long()));
            grouped.reduce((a, v) -> v);
            grouped.reduce((a, v) -> v, store("reduced"));
            grouped.reduce((a, v) -> v, Named.as("reduce-named"), unnamed());
            grouped.aggregate(() -> "", (k, v, a) -> a);
            grouped.aggregate(() -> "", (k, v, a) -> a, store("aggregated"));
            grouped.aggregate(() -> "", (k, v, a) -> a, Named.as("aggregate-named"), unnamed());
        });

        all.put("aggregations_repartitioned", b -> {
            final KGroupedStream<String, String> grouped = b.<String, String>stream("in").groupBy((k, v) -> v);
            grouped.count();
            grouped.reduce((a, v) -> v, store("reduced"));
            grouped.aggregate(() -> "", (k, v, a) -> a, Named.as("aggregate-named"), unnamed());
        });

        all.put("aggregations_share_repartition", b -> {
            final KGroupedStream<String, String> grouped = b.<String, String>stream("in")
                .groupBy((k, v) -> v, Grouped.as("by-word"));
            b.stream("between").to("out");
            grouped.count(longs("counts"));
            grouped.reduce((a, v) -> v, store("reduced"));
            b.stream("after").filter((k, v) -> true).to("out");
            grouped.aggregate(() -> "", (k, v, a) -> a);
        });

        all.put("windowed", b -> {
            final KGroupedStream<String, String> grouped = b.<String, String>stream("in").groupByKey();
            final TimeWindowedKStream<String, String> time = grouped
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(5), Duration.ofMinutes(1))
                    .advanceBy(Duration.ofMinutes(1)));
            time.count();
            time.count(Materialized.as("time-counts"));
            time.count(Named.as("time-named"), Materialized.with(Serdes.String(), Serdes.Long()));
            time.reduce((a, v) -> v).toStream().to("time-out");
            time.aggregate(() -> "", (k, v, a) -> a, Materialized.with(Serdes.String(), Serdes.String()));
            final TimeWindowedKStream<String, String> sliding = grouped
                .windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(5)));
            sliding.count(Named.as("sliding-count"));
            sliding.count(Materialized.with(Serdes.String(), Serdes.Long()));
            sliding.reduce((a, v) -> v, Named.as("sliding-reduce"), Materialized.as("sliding-reduced"));
            sliding.aggregate(() -> "", (k, v, a) -> a);
            final SessionWindowedKStream<String, String> session = grouped
                .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(5)));
            session.count();
            session.count(Materialized.with(Serdes.String(), Serdes.Long()));
            session.reduce((a, v) -> v, Materialized.as("session-reduced"));
            session.aggregate(() -> "", (k, v, a) -> a, (k, one, other) -> one, Named.as("session-aggregate"));
        });

        all.put("windowed_repartitioned", b -> {
            final KGroupedStream<String, String> grouped = b.<String, String>stream("in")
                .groupBy((k, v) -> v, Grouped.as("by-word"));
            grouped.count(longs("counts"));
            grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(5))).count(Materialized.as("windowed"))
                .filter((k, v) -> true)
                .toStream()
                .selectKey((k, v) -> k.key())
                .groupByKey()
                .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(5)))
                .count()
                .toStream((k, v) -> k.key())
                .to("out");
        });

        all.put("suppressed", b -> {
            final KTable<Windowed<String>, Long> counts = b.<String, String>stream("in").groupByKey()
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(5), Duration.ofMinutes(1)))
                .count(Materialized.as("counts"));
            counts.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())).toStream().to("out");
            counts.filter((k, v) -> true)
                .suppress(Suppressed.untilWindowCloses(BufferConfig.maxRecords(10).shutDownWhenFull()).withName("final"))
                .mapValues(v -> v, Materialized.as("named"))
                .toStream()
                .to("other");
            counts.suppress(Suppressed.untilTimeLimit(Duration.ofMinutes(1), BufferConfig.maxBytes(1000)));
            counts.suppress(Suppressed.<Windowed<String>>untilTimeLimit(Duration.ZERO, BufferConfig.unbounded()
                .withLoggingDisabled()).withName("limited"));
            counts.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded().withLoggingDisabled()));
            counts.mapValues(v -> v, Materialized.as("after")).toStream().groupByKey().count();
            final KTable<String, String> users = b.table("users");
            users.suppress(Suppressed.untilTimeLimit(Duration.ofMinutes(1), BufferConfig.maxRecords(10)))
                .suppress(Suppressed.untilTimeLimit(Duration.ofMinutes(1), BufferConfig.unbounded()))
                .toStream()
                .groupByKey()
                .count(longs("twice"));
        });

        all.put("suppressed_repartitioned", b -> b.<String, String>stream("in")
            .groupBy((k, v) -> v)
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(5)))
            .count()
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .toStream((k, v) -> k.key())
            .groupByKey()
            .count()
            .suppress(Suppressed.<String>untilTimeLimit(Duration.ofMinutes(1), BufferConfig.unbounded()).withName("slow"))
            .toStream()
            .to("out"));

        all.put("emit_strategies", b -> {
            final KGroupedStream<String, String> grouped = b.<String, String>stream("in").groupByKey();
            for (final EmitStrategy strategy : List.of(EmitStrategy.onWindowClose(), EmitStrategy.onWindowUpdate())) {
                grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(5))).emitStrategy(strategy).count();
                final TimeWindowedKStream<String, String> sliding = grouped
                    .windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(5))).emitStrategy(strategy);
                sliding.reduce((a, v) -> v, Named.as("sliding-" + strategy.type()), Materialized.with(Serdes.String(), Serdes.String()))
                    .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()));
                final SessionWindowedKStream<String, String> session = grouped
                    .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(5))).emitStrategy(strategy);
                session.count(Materialized.as("sessions-" + strategy.type())).toStream().to("out");
                session.aggregate(() -> "", (k, v, a) -> a, (k, one, other) -> one);
            }
        });

        all.put("aggregations_in_a_row", b -> {
            final KTable<String, Long> first = b.<String, String>stream("in").groupByKey().count();
            first.toStream().groupByKey().count(longs("second")).toStream().mapValues(v -> v).groupByKey(Grouped.as("third"))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(5))).count().toStream().to("out");
            first.toStream().toTable().toStream().groupByKey().reduce((a, v) -> v);
        });

        all.put("aggregation_chain", b -> b.<String, String>stream("in")
            .groupBy((k, v) -> v)
            .count(longs("first"))
            .toStream()
            .selectKey((k, v) -> k)
            .groupByKey(Grouped.as("second"))
            .count(longs("second"))
            .toStream((k, v) -> k.toString())
            .groupByKey()
            .count()
            .toStream()
            .to("out"));

        all.put("group_names_topic", b -> {
            b.<String, String>stream("in").selectKey((k, v) -> v).groupByKey(Grouped.as("users")).count();
            b.<String, String>stream("other").groupBy((k, v) -> v, Grouped.as("words-repartition")).count();
        });

        all.put("key_change_is_kept", b -> {
            b.<String, String>stream("a").map((k, v) -> KeyValue.pair(v, k)).filter((k, v) -> true)
                .mapValues(v -> v).peek((k, v) -> { }).groupByKey().count(longs("a"));
            b.<String, String>stream("b").flatMap((k, v) -> List.of(KeyValue.pair(v, k))).groupByKey()
                .count(longs("b"));
            b.<String, String>stream("c").selectKey((k, v) -> v).repartition().groupByKey().count(longs("c"));
            b.<String, String>stream("d").flatMapValues(v -> List.of(v)).groupByKey().count(longs("d"));
        });

        all.put("table_unmaterialized", b -> b.<String, String>table("users")
            .filter((k, v) -> true)
            .filterNot((k, v) -> false)
            .mapValues(v -> v)
            .mapValues((k, v) -> v)
            .toStream()
            .to("out"));

        all.put("table_materialized", b -> {
            final KTable<String, String> users = b.table("users", store("users"));
            users.filter((k, v) -> true, store("some"))
                .mapValues(v -> v, Named.as("upper"), store("upper"))
                .toStream(Named.as("changes"))
                .to("out");
            users.filterNot((k, v) -> true, unnamed()).mapValues(v -> v, unnamed()).toStream().to("out");
            users.filter((k, v) -> true, Named.as("named")).toStream().to("other");
        });

        all.put("table_named", b -> {
            b.table("users", Consumed.with(Serdes.String(), Serdes.String()).withName("people"), store("users"));
            b.table("unnamed", Consumed.with(Serdes.String(), Serdes.String()), unnamed());
            b.table("rest");
        });

        all.put("to_table", b -> {
            final KStream<String, String> in = b.stream("in");
            in.toTable();
            in.toTable(Named.as("named"));
            in.toTable(store("kept")).toStream().to("out");
            in.toTable(Named.as("both"), store("both"));
        });

        all.put("to_table_repartitioned", b -> {
            final KStream<String, String> in = b.<String, String>stream("in").selectKey((k, v) -> v);
            in.toTable();
            in.toTable(Named.as("named")).toStream().to("out");
            in.toTable(store("kept")).filter((k, v) -> true).toStream().to("out");
            in.toTable(Named.as("both"), store("both"));
        });

        all.put("duplicate_sources", b -> {
            final KStream<String, String> first = b.stream("in");
            final KStream<String, String> second = b.stream("in", Consumed.as("again"));
            first.mapValues(v -> v).to("a");
            second.filter((k, v) -> true).to("b");
            second.merge(b.stream("other")).merge(first).to("c");
            b.stream(Arrays.asList("x", "y")).to("d");
            b.stream(Arrays.asList("y", "x")).to("e");
            b.stream(Pattern.compile("p.*")).to("f");
            b.stream(Pattern.compile("p.*")).to("g");
        });

        all.put("wide", b -> {
            final KStream<String, String> in = b.stream("in");
            for (int i = 0; i < 12; i++) {
                KStream<String, String> each = in.mapValues(v -> v);
                for (int j = 0; j < i % 4; j++) {
                    each = each.filter((k, v) -> true);
                }
                each.to("out-" + i);
            }
        });

        all.put("diamonds", b -> {
            KStream<String, String> stream = b.stream("in");
            for (int i = 0; i < 4; i++) {
                stream = stream.filter((k, v) -> true).merge(stream.mapValues(v -> v).peek((k, v) -> { }));
            }
            stream.groupBy((k, v) -> v).count(longs("counts")).toStream().to("out");
        });

        all.put("global_tables", b -> {
            b.stream("first").to("out-first");
            b.globalTable("users", Consumed.with(Serdes.String(), Serdes.String()));
            b.<String, String>stream("in").groupBy((k, v) -> v).count(longs("counts"));
            b.globalTable("cities", store("cities"));
            b.globalTable("named", Consumed.with(Serdes.String(), Serdes.String()).withName("people"), store("people"));
            b.table("rest").toStream().to("out");
        });

        all.put("global_table_first", b -> {
            b.globalTable("users", store("users"));
            b.stream("in").to("out");
            b.globalTable("cities");
        });

        all.put("global_tables_only", b -> {
            b.globalTable("users", store("users"));
            b.globalTable("cities", Consumed.with(Serdes.String(), Serdes.String()));
        });

        all.put("processors", b -> {
            final KStream<String, String> in = b.stream("in");
            in.process(NOTHING).to("a");
            in.process(NOTHING, Named.as("named")).to("b");
            in.processValues(VALUES).to("c");
            in.processValues(VALUES, Named.as("named-values")).to("d");
            in.mapValues(v -> v).process(NOTHING);
            in.filter((k, v) -> true).to("e");
        });

        all.put("processors_with_stores", b -> {
            b.addStateStore(builder("shared"));
            b.addStateStore(builder("unused"));
            final KStream<String, String> one = b.stream("one");
            b.<String, String>stream("alone").process(NOTHING).to("a");
            one.process(NOTHING, "shared").filter((k, v) -> true).to("b");
            b.<String, String>stream("two").processValues(VALUES, "shared").to("c");
            b.addStateStore(builder("later"));
            one.process(bringing("brought", "and-this"), Named.as("bringing"), "later", "shared").to("d");
            b.<String, String>stream("three").process(bringing("alone")).process(NOTHING, "alone").to("e");
        });

        all.put("processors_then_groups", b -> {
            final KStream<String, String> in = b.stream("in");
            b.addStateStore(builder("store"));
            in.process(NOTHING, "store").groupByKey().count(longs("counts")).toStream().process(() ->
                new Processor<String, Long, String, String>() {
                    @Override
                    public void process(final Record<String, Long> record) { }
                }, "store").to("a");
            in.processValues(VALUES).groupByKey().count(longs("others"));
            in.process(NOTHING, Named.as("named")).groupByKey().count();
            in.selectKey((k, v) -> v).processValues(VALUES, "store").toTable();
            in.process(NOTHING).join(b.table("users"), (v, u) -> v).to("b");
            in.process(NOTHING).repartition().process(NOTHING).merge(in).to("c");
        });

        all.put("transformed_tables", b -> {
            b.addStateStore(builder("shared"));
            b.addStateStore(builder("another"));
            final KTable<String, String> in = b.table("in");
            final KTable<String, String> kept = b.table("kept", store("kept"));
            in.transformValues(SAME).toStream().to("a");
            in.transformValues(SAME, Named.as("named"), "shared").toStream().to("b");
            in.transformValues(SAME, store("made"), "shared", "another").filter((k, v) -> true).toStream().to("c");
            in.transformValues(SAME, Materialized.with(Serdes.String(), Serdes.String())).mapValues(v -> v);
            kept.transformValues(SAME, store("both"), Named.as("named-too"), "another").toStream().to("d");
            kept.transformValues(SAME).transformValues(SAME).groupBy((k, v) -> KeyValue.pair(v, v)).count();
            final KTable<String, String> other = b.table("other");
            other.transformValues(SAME).groupBy((k, v) -> KeyValue.pair(v, v)).count();
            final KTable<String, String> joined = b.<String, String>table("joined").transformValues(SAME);
            joined.join(b.<String, String>table("right").transformValues(SAME, store("rows")), (l, r) -> l).toStream().to("e");
            b.<String, String>stream("clicks").join(joined, (l, r) -> l).to("f");
        });

        all.put("global_stores", b -> {
            final KStream<String, String> in = b.stream("in");
            b.addGlobalStore(builder("one"), "g-one", Consumed.with(Serdes.String(), Serdes.String()), Fill::new);
            in.process(NOTHING).to("a");
            b.addGlobalStore(builder("two"), "g-two",
                Consumed.with(Serdes.String(), Serdes.String()).withName("named"), Fill::new);
            b.stream("other").to("b");
        });

        all.put("stream_table_joins", b -> {
            final KStream<String, String> in = b.stream("in");
            final KTable<String, String> users = b.table("users");
            in.join(users, (v, u) -> v).to("a");
            in.leftJoin(users, (k, v, u) -> v).to("b");
            in.join(b.<String, String>table("kept", store("kept")), (v, u) -> v, Joined.as("named")).to("c");
            in.leftJoin(users.filter((k, v) -> true).mapValues(v -> v), (v, u) -> v, Joined.as("derived")).to("d");
            in.join(users.mapValues(v -> v, store("upper")), (v, u) -> v).to("e");
            in.join(b.<String, String>stream("other").toTable(), (v, u) -> v).to("f");
            in.join(b.<String, String>stream("events").groupByKey().count(), (v, n) -> v).to("g");
        });

        all.put("stream_table_joins_repartitioned", b -> {
            final KStream<String, String> changed = b.<String, String>stream("in").selectKey((k, v) -> v);
            final KTable<String, String> users = b.table("users");
            changed.join(users, (v, u) -> v).to("a");
            changed.leftJoin(users, (v, u) -> v).to("b");
            changed.join(users, (v, u) -> v, Joined.as("named")).to("c");
            changed.leftJoin(users, (v, u) -> v).to("d");
            changed.groupByKey().count();
            final KStream<String, String> mapped = b.<String, String>stream("in").map((k, v) -> KeyValue.pair(v, k), Named.as("mapper"));
            mapped.join(users, (v, u) -> v).to("e");
            mapped.leftJoin(users, (v, u) -> v).to("f");
            mapped.filter((k, v) -> true).join(users, (v, u) -> v, Joined.as("once"))
                .selectKey((k, v) -> v).join(users, (v, u) -> v, Joined.as("twice")).groupByKey().count(longs("counts"));
        });

        all.put("stream_table_joins_with_grace", b -> {
            final KTable<String, String> users = b.table("users", Materialized.<String, String>as(
                Stores.persistentVersionedKeyValueStore("users", Duration.ofHours(1))));
            final KStream<String, String> in = b.stream("in");
            in.join(users, (v, u) -> v, Joined.with(Serdes.String(), Serdes.String(), Serdes.String(), null, Duration.ofMinutes(1))).to("a");
            in.selectKey((k, v) -> v).leftJoin(users, (v, u) -> v,
                Joined.with(Serdes.String(), Serdes.String(), Serdes.String(), "named", Duration.ofMinutes(1))).to("b");
        });

        all.put("stream_table_joins_in_a_row", b -> {
            final KTable<String, String> one = b.table("one");
            final KTable<String, String> two = b.table("two", store("two"));
            b.<String, String>stream("in").join(one, (v, u) -> v).leftJoin(two, (v, u) -> v).mapValues(v -> v)
                .join(b.<String, String>stream("three").groupByKey().reduce((a, v) -> v), (v, u) -> v)
                .groupByKey().count(longs("counts")).toStream().join(one, (v, u) -> "").to("out");
        });

        all.put("stream_joins_own_table", b -> {
            final KStream<String, String> in = b.stream("in");
            in.join(in.groupByKey().count(), (v, n) -> v).to("a");
            in.leftJoin(in.toTable(), (v, u) -> v).to("b");
            final KTable<String, String> users = b.table("users");
            users.toStream().join(users, (v, u) -> v).to("c");
            users.toStream().leftJoin(users.mapValues(v -> v), (v, u) -> v).to("d");
            final KStream<String, String> changed = in.selectKey((k, v) -> v);
            changed.join(changed.groupByKey().count(longs("counts")), (v, n) -> v).to("e");
        });

        all.put("stream_joins", b -> {
            final KStream<String, String> left = b.stream("left");
            final KStream<String, String> right = b.stream("right");
            left.join(right, (v, u) -> v, FIVE).to("a");
            left.leftJoin(right, (k, v, u) -> v, FIVE).to("b");
            left.outerJoin(right, (v, u) -> v, FIVE).to("c");
        });

        all.put("stream_joins_named", b -> {
            final KStream<String, String> left = b.stream("left");
            final KStream<String, String> right = b.stream("right");
            left.join(right, (v, u) -> v, FIVE, StreamJoined.<String, String, String>as("inner-store").withName("inner")).to("a");
            left.leftJoin(right, (v, u) -> v, FIVE, StreamJoined.<String, String, String>as("left-store").withName("left")).to("b");
            left.outerJoin(right, (v, u) -> v, FIVE, StreamJoined.<String, String, String>as("outer-store").withName("outer")).to("c");
            left.join(right, (v, u) -> v, FIVE, StreamJoined.<String, String, String>as("stored")).to("d");
            left.leftJoin(right, (v, u) -> v, FIVE, StreamJoined.<String, String, String>as("left-stored")).to("e");
            left.outerJoin(right, (v, u) -> v, FIVE, StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String())
                .withName("only-named").withLoggingDisabled()).to("f");
        });

        all.put("stream_joins_repartitioned", b -> {
            final KStream<String, String> left = b.stream("left");
            final KStream<String, String> right = b.stream("right");
            final KStream<String, String> leftChanged = left.selectKey((k, v) -> v);
            final KStream<String, String> rightChanged = right.map((k, v) -> KeyValue.pair(v, k), Named.as("mapper"));
            leftChanged.join(right, (v, u) -> v, FIVE).to("a");
            left.leftJoin(rightChanged, (v, u) -> v, FIVE).to("b");
            leftChanged.outerJoin(rightChanged, (v, u) -> v, FIVE).to("c");
            leftChanged.join(rightChanged, (v, u) -> v, FIVE, StreamJoined.<String, String, String>as("store").withName("named")).to("d");
            leftChanged.leftJoin(rightChanged, (v, u) -> v, FIVE).groupByKey().count(longs("counts"));
        });

        all.put("stream_joins_itself", b -> {
            final KStream<String, String> in = b.stream("in");
            in.join(in, (v, u) -> v, FIVE).to("a");
            in.leftJoin(in, (v, u) -> v, FIVE, StreamJoined.<String, String, String>as("store").withName("named")).to("b");
            in.outerJoin(in.filter((k, v) -> true), (v, u) -> v, FIVE).to("c");
            in.join(b.<String, String>stream("in"), (v, u) -> v, FIVE).to("d");
            final KStream<String, String> changed = in.selectKey((k, v) -> v);
            changed.join(changed, (v, u) -> v, FIVE).to("e");
            changed.leftJoin(changed, (v, u) -> v, FIVE, StreamJoined.<String, String, String>as("changed").withName("changed")).to("f");
        });

        all.put("stream_joins_in_a_row", b -> {
            final KStream<String, String> one = b.stream("one");
            final KStream<String, String> two = b.stream("two");
            final KStream<String, String> three = b.stream("three");
            final KStream<String, String> joined = one.join(two, (v, u) -> v, FIVE);
            joined.leftJoin(three, (v, u) -> v, FIVE).filter((k, v) -> true)
                .outerJoin(joined, (v, u) -> v, FIVE).join(b.<String, String>table("users"), (v, u) -> v)
                .selectKey((k, v) -> v).join(two, (v, u) -> v, FIVE).groupByKey().count().toStream().to("out");
            one.merge(two).join(three, (v, u) -> v, FIVE).to("merged");
        });

        all.put("table_joins", b -> {
            final KTable<String, String> left = b.table("left");
            final KTable<String, String> right = b.table("right");
            left.join(right, (v, u) -> v).toStream().to("a");
            left.leftJoin(right, (v, u) -> v).toStream().to("b");
            left.outerJoin(right, (v, u) -> v).toStream().to("c");
            left.join(right, (v, u) -> v, Named.as("named")).toStream().to("d");
            left.leftJoin(right, (v, u) -> v, store("left-joined")).toStream().to("e");
            left.outerJoin(right, (v, u) -> v, Named.as("both"), store("outer-joined")).toStream().to("f");
            left.join(right, (v, u) -> v, unnamed()).toStream().to("g");
        });

        all.put("table_joins_derived", b -> {
            final KTable<String, String> users = b.table("users");
            final KTable<String, String> kept = b.table("kept", store("kept"));
            users.filter((k, v) -> true).join(users.mapValues(v -> v), (v, u) -> v).toStream().to("a");
            users.leftJoin(users, (v, u) -> v).toStream().to("b");
            kept.mapValues(v -> v, store("upper")).outerJoin(kept, (v, u) -> v).toStream().to("c");
            b.<String, String>stream("in").toTable().join(b.<String, String>stream("in").groupByKey().count(), (v, n) -> v).toStream().to("d");
            b.<String, String>table("only", Consumed.as("only")).filter((k, v) -> true, store("some"))
                .join(kept.filter((k, v) -> true, Named.as("rest")), (v, u) -> v, Named.as("joined")).toStream().to("e");
            b.<String, String>stream("other").selectKey((k, v) -> v).toTable(Named.as("tabled")).leftJoin(kept, (v, u) -> v).toStream().to("f");
        });

        all.put("table_joins_in_a_row", b -> {
            final KTable<String, String> one = b.table("one");
            final KTable<String, String> two = b.table("two");
            final KTable<String, String> three = b.table("three");
            final KTable<String, String> joined = one.join(two, (v, u) -> v);
            joined.leftJoin(three, (v, u) -> v).filter((k, v) -> true).outerJoin(joined, (v, u) -> v, store("all"))
                .mapValues(v -> v).join(one, (v, u) -> v).toStream().groupByKey().count();
            b.<String, String>stream("in").join(joined, (v, u) -> v).to("out");
            b.<String, String>stream("events").leftJoin(joined.mapValues(v -> v).leftJoin(three, (v, u) -> v, store("kept")), (v, u) -> v).to("rest");
        });

        all.put("table_joins_suppressed", b -> {
            final KTable<String, String> users = b.table("users");
            final KTable<String, String> slow = users.suppress(Suppressed.untilTimeLimit(Duration.ofMinutes(1), BufferConfig.unbounded()));
            slow.join(b.<String, String>table("right"), (v, u) -> v).toStream().to("a");
            b.<String, String>stream("in").join(slow.mapValues(v -> v), (v, u) -> v).to("b");
            b.<String, String>table("left").leftJoin(b.<String, String>table("rest"), (v, u) -> v)
                .suppress(Suppressed.untilTimeLimit(Duration.ofMinutes(1), BufferConfig.unbounded())).toStream().to("c");
            final KTable<Windowed<String>, Long> windows = b.<String, String>stream("events").groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(5))).count();
            windows.join(windows.mapValues(v -> v), (v, u) -> v).suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())).toStream().to("d");
        });

        all.put("global_joins", b -> {
            final KStream<String, String> in = b.stream("in");
            final GlobalKTable<String, String> users = b.globalTable("users");
            final GlobalKTable<String, String> cities = b.globalTable("cities", store("cities"));
            in.join(users, (k, v) -> v, (v, u) -> v).to("a");
            in.leftJoin(cities, (k, v) -> v, (k, v, u) -> v, Named.as("named")).join(users, (k, v) -> v, (v, u) -> v).to("b");
            in.selectKey((k, v) -> v).join(users, (k, v) -> v, (v, u) -> v, Named.as("changed")).groupByKey().count();
            b.<String, String>table("rest").toStream().leftJoin(users, (k, v) -> v, (v, u) -> v)
                .join(in, (v, u) -> v, FIVE).to("c");
        });

        all.put("grouped_tables", b -> {
            final KTable<String, String> users = b.table("users");
            users.groupBy((k, v) -> KeyValue.pair(v, k)).count();
            users.groupBy((k, v) -> KeyValue.pair(v, k)).count(longs("counts")).toStream().to("a");
            users.groupBy((k, v) -> KeyValue.pair(v, k)).count(Named.as("counted"));
            users.groupBy((k, v) -> KeyValue.pair(v, k)).reduce((a, v) -> v, (a, v) -> v);
            users.groupBy((k, v) -> KeyValue.pair(v, k)).reduce((a, v) -> v, (a, v) -> v, store("reduced"));
            users.groupBy((k, v) -> KeyValue.pair(v, k)).reduce((a, v) -> v, (a, v) -> v, Named.as("both"), store("both"));
            users.groupBy((k, v) -> KeyValue.pair(v, k)).aggregate(() -> "", (k, v, a) -> a, (k, v, a) -> a);
            users.groupBy((k, v) -> KeyValue.pair(v, k)).aggregate(() -> "", (k, v, a) -> a, (k, v, a) -> a, Named.as("aggregated"));
            users.groupBy((k, v) -> KeyValue.pair(v, k)).aggregate(() -> "", (k, v, a) -> a, (k, v, a) -> a, unnamed());
            users.groupBy((k, v) -> KeyValue.pair(v, k)).count(Materialized.with(Serdes.String(), Serdes.Long()));
        });

        all.put("grouped_tables_shared", b -> {
            final KGroupedTable<String, String> named = b.<String, String>table("users").groupBy((k, v) -> KeyValue.pair(v, k), Grouped.as("by-city"));
            named.count().toStream().to("a");
            named.reduce((a, v) -> v, (a, v) -> v, store("reduced")).toStream().to("b");
            named.count(Named.as("again"));
            final KGroupedTable<String, String> unnamed = b.<String, String>table("towns", store("towns"))
                .groupBy((k, v) -> KeyValue.pair(v, k), Grouped.with(Serdes.String(), Serdes.String()));
            unnamed.count();
            unnamed.aggregate(() -> "", (k, v, a) -> a, (k, v, a) -> a);
        });

        all.put("grouped_tables_derived", b -> {
            final KTable<String, String> users = b.table("users");
            users.filter((k, v) -> true).mapValues(v -> v).groupBy((k, v) -> KeyValue.pair(v, k)).count()
                .groupBy((k, v) -> KeyValue.pair(k, k), Grouped.as("again")).reduce((a, v) -> v, (a, v) -> v).toStream().to("a");
            b.<String, String>stream("in").groupByKey().count().mapValues(v -> "", store("mapped"))
                .groupBy((k, v) -> KeyValue.pair(v, k)).count().toStream().to("b");
            users.join(b.<String, String>table("cities"), (v, u) -> v).groupBy((k, v) -> KeyValue.pair(v, k)).count(longs("joined"));
            b.<String, String>stream("other").toTable().groupBy((k, v) -> KeyValue.pair(v, k)).count(longs("tabled"))
                .join(users, (v, u) -> v).toStream().selectKey((k, v) -> k).join(users, (v, u) -> v).to("c");
        });

        all.put("cogroups", b -> {
            final KGroupedStream<String, String> one = b.<String, String>stream("one").groupByKey();
            final KGroupedStream<String, String> two = b.<String, String>stream("two").groupByKey();
            one.cogroup((String k, String v, String a) -> a).aggregate(() -> "").toStream().to("a");
            one.cogroup((String k, String v, String a) -> a).cogroup(two, (k, v, a) -> a).aggregate(() -> "", store("both")).toStream().to("b");
            one.cogroup((String k, String v, String a) -> a).cogroup(two, (k, v, a) -> a)
                .aggregate(() -> "", Named.as("named"), store("named")).toStream().to("c");
            two.cogroup((String k, String v, String a) -> a).cogroup(one, (k, v, a) -> a).aggregate(() -> "", Named.as("only-named"))
                .join(b.<String, String>table("users"), (v, u) -> v).toStream().to("d");
            one.cogroup((String k, String v, String a) -> a).cogroup(one, (k, v, a) -> a).aggregate(() -> "", unnamed());
        });

        all.put("cogroups_repartitioned", b -> {
            final KGroupedStream<String, String> one = b.<String, String>stream("one").groupBy((k, v) -> v);
            final KGroupedStream<String, String> two = b.<String, String>stream("two").groupBy((k, v) -> v, Grouped.as("by-two"));
            final KGroupedStream<String, String> three = b.<String, String>stream("three").groupByKey();
            final KGroupedStream<String, String> four = b.<String, String>stream("four").groupBy((k, v) -> v);
            one.cogroup((String k, String v, String a) -> a).cogroup(two, (k, v, a) -> a).cogroup(three, (k, v, a) -> a)
                .aggregate(() -> "").toStream().to("a");
            four.cogroup((String k, String v, String a) -> a).cogroup(three, (k, v, a) -> a).aggregate(() -> "", Named.as("named"), store("kept"));
            three.cogroup((String k, String v, String a) -> a).cogroup(four, (k, v, a) -> a).aggregate(() -> "", store("stored"));
            one.cogroup((String k, String v, String a) -> a).cogroup(three, (k, v, a) -> a).aggregate(() -> "", Named.as("again"));
            one.count();
            final CogroupedKStream<String, String> shared = b.<String, String>stream("five").groupBy((k, v) -> v)
                .cogroup((String k, String v, String a) -> a);
            shared.aggregate(() -> "");
            shared.aggregate(() -> "", store("shared"));
        });

        all.put("cogroups_windowed", b -> {
            final KGroupedStream<String, String> one = b.<String, String>stream("one").groupByKey();
            final KGroupedStream<String, String> two = b.<String, String>stream("two").groupBy((k, v) -> v);
            final TimeWindows tumbling = TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(5));
            one.cogroup((String k, String v, String a) -> a).cogroup(two, (k, v, a) -> a).windowedBy(tumbling).aggregate(() -> "").toStream().to("a");
            one.cogroup((String k, String v, String a) -> a).cogroup(two, (k, v, a) -> a)
                .windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(5))).aggregate(() -> "", Named.as("sliding")).toStream().to("b");
            one.cogroup((String k, String v, String a) -> a).cogroup(two, (k, v, a) -> a)
                .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(5))).aggregate(() -> "", (k, x, y) -> x, Materialized.as("sessions"));
            one.cogroup((String k, String v, String a) -> a).windowedBy(tumbling).aggregate(() -> "", Named.as("single"), Materialized.as("windows"));
        });

        all.put("foreign_key_joins", b -> {
            final KTable<String, String> orders = b.table("orders");
            final KTable<String, String> users = b.table("users", store("users"));
            orders.join(users, (String v) -> v, (v, u) -> v).toStream().to("a");
            orders.leftJoin(users, (String v) -> v, (v, u) -> v, store("left")).toStream().to("b");
            orders.join(users.filter((k, v) -> true), (String v) -> v, (v, u) -> v, TableJoined.as("named")).toStream().to("c");
            orders.leftJoin(orders, (String v) -> v, (v, u) -> v, TableJoined.as("both"), store("itself")).mapValues(v -> v)
                .join(users, (v, u) -> v).toStream().to("d");
        });

        return all;
    }

    /** Programs that are written node by node. */
    static Map<String, Consumer<Topology>> topologies() {
        final Map<String, Consumer<Topology>> all = new TreeMap<>();

        all.put("topology_word_count", t -> {
            t.addSource("Source", "streams-plaintext-input");
            t.addProcessor("Process", NOTHING, "Source");
            t.addStateStore(builder("Counts"), "Process");
            t.addSink("Sink", "streams-wordcount-processor-output", "Process");
        });

        all.put("topology_shared_stores", t -> {
            t.addSource("one", "a", "b");
            t.addSource("two", Pattern.compile("c-.*"));
            t.addSource("three", "d");
            t.addProcessor("p-one", NOTHING, "one");
            t.addProcessor("p-two", NOTHING, "two", "one");
            t.addProcessor("p-three", bringing("own", "other"), "three");
            t.addProcessor("p-four", NOTHING, "p-three", "p-one");
            t.addSink("s-one", "out", "p-four", "one");
            t.addSink("s-two", new ByWord(), "p-two");
            t.addSource("four", "e");
            t.addProcessor("p-five", NOTHING, "four");
            t.addStateStore(builder("shared"));
            t.addStateStore(builder("unused"));
            t.connectProcessorAndStateStores("p-five", "shared", "own");
            t.addSource("five", "f");
            t.addProcessor("p-six", NOTHING, "five");
            t.addStateStore(builder("last"), "p-six");
            t.addSink("s-three", "out", "p-six");
        });

        all.put("topology_global_stores", t -> {
            t.addSource("one", "a");
            t.addGlobalStore(builder("global").withLoggingDisabled(), "global-source",
                Serdes.String().deserializer(), Serdes.String().deserializer(), "g", "global-processor", Fill::new);
            t.addProcessor("p-one", NOTHING, "one");
            t.addReadOnlyStateStore(builder("read-only"), "ro-source",
                Serdes.String().deserializer(), Serdes.String().deserializer(), "r", "ro-processor", Fill::new);
            t.connectProcessorAndStateStores("p-one", "read-only");
            t.addSource("two", "b");
            t.addSink("out", "out", "two", "p-one");
        });

        return all;
    }

    public static void main(final String[] args) throws Exception {
        for (final Map.Entry<String, Consumer<Topology>> each : topologies().entrySet()) {
            final Topology topology = new Topology();
            each.getValue().accept(topology);
            Files.writeString(Path.of(args[0], each.getKey() + ".txt"), topology.describe().toString());
        }
        for (final Map.Entry<String, Consumer<StreamsBuilder>> each : programs().entrySet()) {
            final StreamsBuilder builder = new StreamsBuilder();
            each.getValue().accept(builder);
            final String text = builder.build().describe().toString();
            Files.writeString(Path.of(args[0], each.getKey() + ".txt"), text);
        }
    }
}
