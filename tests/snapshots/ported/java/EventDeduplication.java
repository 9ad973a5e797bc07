import java.time.Duration;
import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** As EventDeduplicationLambdaIntegrationTest of confluentinc/kafka-streams-examples has it. */
public class EventDeduplication implements Ported.Program {
    private static final Duration REMEMBERED = Duration.ofMinutes(10);

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("eventId-store", REMEMBERED, REMEMBERED, false),
            Serdes.String(), Serdes.Long()));
        builder.stream("inputTopic", Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .process(Deduplicate::new, "eventId-store")
            .to("outputTopic", Produced.with(Serdes.ByteArray(), Serdes.String()));
        return builder.build();
    }

    /** Lets an event pass unless it was there five minutes before or after. */
    private static class Deduplicate implements Processor<byte[], String, byte[], String> {
        private ProcessorContext<byte[], String> context;
        private WindowStore<String, Long> events;

        @Override
        public void init(final ProcessorContext<byte[], String> context) {
            this.context = context;
            events = context.getStateStore("eventId-store");
        }

        @Override
        public void process(final Record<byte[], String> record) {
            final String event = record.value();
            if (event == null) {
                context.forward(record);
                return;
            }
            final boolean known = isKnown(event, record.timestamp());
            events.put(event, record.timestamp(), record.timestamp());
            if (!known) {
                context.forward(record);
            }
        }

        private boolean isKnown(final String event, final long time) {
            final long half = REMEMBERED.toMillis() / 2;
            try (WindowStoreIterator<Long> found = events.fetch(event, time - half, time + half)) {
                return found.hasNext();
            }
        }
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.STRING));
    }
}
