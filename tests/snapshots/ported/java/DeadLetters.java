import java.io.IOException;
import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** As KafkaStreamsDLQApplication of confluentinc/tutorials has it. */
public class DeadLetters implements Ported.Program {
    public record Dimensions(String diameter, String weight) { }

    public record Ball(String shape, Dimensions dimensions) { }

    public record SportEvent(String sport, Ball ball, Map<String, String> details) { }

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("input", Consumed.with(Serdes.String(), Serdes.String()))
            .mapValues(DeadLetters::checked)
            .to("output", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    static String checked(final String value) {
        try {
            if (Ported.MAPPER.readValue(value, SportEvent.class).ball() == null) {
                throw new IllegalStateException("an event without a ball");
            }
            return value;
        } catch (final IOException error) {
            throw new IllegalStateException("no event of sports", error);
        }
    }

    @Override
    public Map<String, Object> config() {
        return Map.of(
            StreamsConfig.ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME_CONFIG, "dlq-topic",
            StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueProcessingExceptionHandler.class);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.STRING));
    }
}
