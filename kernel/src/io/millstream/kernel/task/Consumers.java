package io.millstream.kernel.task;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The consumers of tasks, which are told what they read, and from where. */
final class Consumers {
    private Consumers() {}

    /** @param isCommitted whether it reads only what is committed */
    static Consumer<byte[], byte[]> of(TaskPlan plan, boolean isCommitted) {
        return new KafkaConsumer<>(settings(plan, isCommitted)) {
            /** Otherwise it waits for the answer to its last fetch. */
            @Override
            @SuppressWarnings("super")
            public void close() {
                close(Duration.ZERO);
            }
        };
    }

    private static Map<String, Object> settings(TaskPlan plan, boolean isCommitted) {
        Map<String, Object> settings = new HashMap<>(plan.consumer());
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, plan.application());
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, "false");
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none"); // there is a policy for each topic
        if (isCommitted) {
            settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        }
        return settings;
    }
}
