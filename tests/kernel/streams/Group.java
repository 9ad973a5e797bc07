package org.apache.kafka.streams.processor.internals;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.errors.LogAndFailExceptionHandler;
import org.apache.kafka.streams.processor.FailOnInvalidTimestamp;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;

/** A PartitionGroup of Kafka Streams; it is in its package because it is not public. */
public final class Group {
    private final Map<String, Long> lags = new HashMap<>();
    private final Map<String, Long> offsets = new HashMap<>();
    private final PartitionGroup group;

    public Group(long idleMs, List<String> topics) {
        LogContext log = new LogContext();
        StreamsMetricsImpl metrics = new StreamsMetricsImpl(new Metrics(), "client", Time.SYSTEM);
        InternalProcessorContext<?, ?> context = (InternalProcessorContext<?, ?>) Proxy.newProxyInstance(
                Group.class.getClassLoader(),
                new Class<?>[] {InternalProcessorContext.class},
                (proxy, method, arguments) -> switch (method.getName()) {
                    case "metrics" -> metrics;
                    case "taskId" -> new TaskId(0, 0);
                    default -> null;
                });
        Map<TopicPartition, RecordQueue> queues = new HashMap<>();
        for (String topic : topics) {
            TopicPartition partition = new TopicPartition(topic, 0);
            SourceNode<byte[], byte[]> source =
                    new SourceNode<>(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            queues.put(partition, new RecordQueue(
                    partition, source, new FailOnInvalidTimestamp(), new LogAndFailExceptionHandler(), context, log));
        }
        group = new PartitionGroup(
                log,
                queues,
                partition -> {
                    Long lag = lags.get(partition.topic());
                    return lag == null ? OptionalLong.empty() : OptionalLong.of(lag);
                },
                new Metrics().sensor("lateness"),
                new Metrics().sensor("enforced"),
                idleMs);
    }

    public void add(String topic, List<String> times) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (String time : times) {
            records.add(new ConsumerRecord<>(
                    topic, 0, offsets.merge(topic, 1L, Long::sum), Long.parseLong(time), TimestampType.CREATE_TIME, 0, 0,
                    new byte[0], new byte[0], new RecordHeaders(), Optional.empty()));
        }
        group.addRawRecords(new TopicPartition(topic, 0), records);
    }

    public void lag(String topic, long records) {
        lags.put(topic, records);
    }

    public String take(long nowMs) {
        group.updateLags();
        if (!group.readyToProcess(nowMs).isReady()) {
            return "wait";
        }
        PartitionGroup.RecordInfo info = new PartitionGroup.RecordInfo();
        StampedRecord record = group.nextRecord(info, nowMs);
        return record == null ? "wait" : record.topic() + " " + record.offset() + " " + group.streamTime();
    }
}
