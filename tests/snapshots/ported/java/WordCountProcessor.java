import java.time.Duration;
import java.util.Locale;
import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** As WordCountProcessorDemo of apache/kafka has it. */
public class WordCountProcessor implements Ported.Program {
    static class Words implements Processor<String, String, String, String> {
        private KeyValueStore<String, Integer> counts;

        @Override
        public void init(final ProcessorContext<String, String> context) {
            counts = context.getStateStore("Counts");
            context.schedule(Duration.ofSeconds(1), PunctuationType.STREAM_TIME, time -> {
                try (KeyValueIterator<String, Integer> all = counts.all()) {
                    System.out.println("The counts at " + time + ":");
                    while (all.hasNext()) {
                        final KeyValue<String, Integer> each = all.next();
                        System.out.println("  " + each.key + ": " + each.value);
                        context.forward(new Record<>(each.key, each.value.toString(), time));
                    }
                }
            });
        }

        @Override
        public void process(final Record<String, String> record) {
            for (final String word : record.value().toLowerCase(Locale.ROOT).split("\\W+")) {
                final Integer before = counts.get(word);
                counts.put(word, before == null ? 1 : before + 1);
            }
        }
    }

    @Override
    public Topology topology() {
        return new Topology()
            .addSource("Source", "streams-plaintext-input")
            .addProcessor("Process", Words::new, "Source")
            .addStateStore(
                Stores.keyValueStoreBuilder(
                    Stores.inMemoryKeyValueStore("Counts"), Serdes.String(), Serdes.Integer()),
                "Process")
            .addSink("Sink", "streams-wordcount-processor-output", "Process");
    }

    @Override
    public Map<String, Object> config() {
        return Map.of(
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class,
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.STRING));
    }
}
