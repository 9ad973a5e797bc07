package io.millstream.kernel.sink;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** How large the batches may be that topics take. Asked only where a record is larger than most. */
final class TopicLimits {
    private static final Logger LOG = LoggerFactory.getLogger(TopicLimits.class);
    private static final long DEFAULT = 1_048_588;
    private static final long KNOWN_FOR = TimeUnit.MINUTES.toNanos(1);
    private static final long PATIENCE_SECONDS = 10;
    private static final Map<String, Limit> KNOWN = new ConcurrentHashMap<>();

    private record Limit(long bytes, long since) {}

    private TopicLimits() {}

    /** What the topic's {@code max.message.bytes} is; Kafka's default where that may not be asked. */
    static long of(Options options, String topic) {
        Limit known = KNOWN.get(options.place(topic));
        if (known == null || System.nanoTime() - known.since > KNOWN_FOR) {
            known = new Limit(asked(options, topic), System.nanoTime());
            KNOWN.put(options.place(topic), known);
        }
        return known.bytes;
    }

    private static long asked(Options options, String topic) {
        Map<String, Object> settings = new HashMap<>(options.kafka());
        settings.keySet().retainAll(AdminClientConfig.configNames());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(settings)) {
            ConfigEntry entry = admin.describeConfigs(List.of(resource))
                    .all()
                    .get(PATIENCE_SECONDS, TimeUnit.SECONDS)
                    .get(resource)
                    .get(TopicConfig.MAX_MESSAGE_BYTES_CONFIG);
            return entry == null ? DEFAULT : Long.parseLong(entry.value());
        } catch (ExecutionException | TimeoutException error) {
            LOG.debug("max.message.bytes of topic '{}' is not known", topic, error);
            return DEFAULT;
        } catch (InterruptedException error) {
            throw new org.apache.kafka.common.errors.InterruptException(error);
        }
    }
}
