package io.millstream.kernel.sink;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.errors.InterruptException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The maximum sizes of the batches that topics accept. Requested only for unusually large records. */
final class TopicLimits {
    private static final Logger LOG = LoggerFactory.getLogger(TopicLimits.class);
    private static final long UNKNOWN = Long.MAX_VALUE;
    private static final long KNOWN_FOR = TimeUnit.MINUTES.toNanos(1);
    private static final int PATIENCE_MS = 10_000;
    private static final Map<String, Limit> KNOWN = new ConcurrentHashMap<>();

    private record Limit(long bytes, long since) {}

    private TopicLimits() {}

    /** The topic's {@code max.message.bytes}; unlimited if this user must not read it. */
    static long of(Options options, String topic) {
        Limit known = KNOWN.get(options.place(topic));
        if (known == null || System.nanoTime() - known.since > KNOWN_FOR) {
            known = new Limit(asked(options, topic), System.nanoTime());
            KNOWN.put(options.place(topic), known);
        }
        return known.bytes;
    }

    private static long asked(Options options, String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, Object> known = new HashMap<>(options.kafka());
        known.keySet().retainAll(AdminClientConfig.configNames());
        try (Admin admin = Admin.create(known)) {
            // Closing waits for the answer for as long as the client does.
            DescribeConfigsOptions how = new DescribeConfigsOptions().timeoutMs(PATIENCE_MS);
            ConfigEntry entry = admin.describeConfigs(List.of(resource), how)
                    .all()
                    .get()
                    .get(resource)
                    .get(TopicConfig.MAX_MESSAGE_BYTES_CONFIG);
            return entry == null || entry.value() == null ? UNKNOWN : Long.parseLong(entry.value());
        } catch (InterruptedException error) {
            throw new InterruptException(error); // the thread is marked, and ends
        } catch (ExecutionException | KafkaException error) {
            LOG.debug("max.message.bytes of topic '{}' is not known", topic, error);
            return UNKNOWN;
        }
    }
}
