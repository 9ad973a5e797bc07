package io.millstream.kernel.sink;

import io.millstream.kernel.Constants;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.utils.Utils;

/** What a task has written to each topic, and what it has dropped. */
public final class Written implements Serializable {
    private static final long serialVersionUID = 1;
    private static final String BATCH = "batch";
    /** Timestamp, offset, and partition. */
    private static final long FIXED = 8 + 8 + 4;

    /** The records of one topic and, for those with a timestamp, their age in ms when they were sent. */
    private static final class Topic implements Serializable {
        private static final long serialVersionUID = 1;
        private long records;
        private long bytes;
        private long timed;
        private long least = Long.MAX_VALUE;
        private long most = Long.MIN_VALUE;
        private long sum;

        void add(Topic other) {
            records += other.records;
            bytes += other.bytes;
            timed += other.timed;
            least = Math.min(least, other.least);
            most = Math.max(most, other.most);
            sum += other.sum;
        }

        /** As numbers; those of the age are omitted if no record has one. */
        String figures() {
            String counts = records + " " + bytes;
            return timed == 0 ? counts : counts + " " + timed + " " + least + " " + most + " " + sum;
        }
    }

    private final HashMap<String, Topic> topics = new HashMap<>();
    private transient String last;
    private transient Topic ofLast;
    private final Dropped dropped = new Dropped();

    void add(ProducerRecord<byte[], byte[]> record) {
        if (last == null || !last.equals(record.topic())) {
            last = record.topic();
            ofLast = topics.computeIfAbsent(last, name -> new Topic());
        }
        Topic topic = ofLast;
        topic.records++;
        topic.bytes += size(record);
        if (record.timestamp() != null) {
            long age = System.currentTimeMillis() - record.timestamp();
            topic.timed++;
            topic.least = Math.min(topic.least, age);
            topic.most = Math.max(topic.most, age);
            topic.sum += age;
        }
    }

    /** Add what another one has. */
    public void add(Written other) {
        other.topics.forEach(
                (name, topic) -> topics.computeIfAbsent(name, any -> new Topic()).add(topic));
        dropped.add(other.dropped);
    }

    /** A record was not written after all. Its age stays in the figures. */
    void remove(ProducerRecord<byte[], byte[]> record) {
        Topic topic = topics.get(record.topic());
        topic.records--;
        topic.bytes -= size(record);
    }

    /** As Kafka Streams counts: ClientUtils, producerRecordSizeInBytes. */
    private static long size(ProducerRecord<byte[], byte[]> record) {
        long total = FIXED + Utils.utf8Length(record.topic()) + size(record.key()) + size(record.value());
        for (Header header : record.headers()) {
            total += Utils.utf8Length(header.key()) + size(header.value());
        }
        return total;
    }

    private static long size(byte[] data) {
        return data == null ? 0 : data.length;
    }

    Dropped dropped() {
        return dropped;
    }

    /**
     * As the metrics of a progress report: {@code written:<topic>} with the numbers for its records, and those of
     * {@link Dropped}. Includes the batch's number, because a report may repeat the last one.
     */
    public Map<String, String> metrics(long batch) {
        Map<String, String> metrics = new TreeMap<>(dropped.metrics());
        topics.forEach((name, topic) -> metrics.put(Constants.METRIC_WRITTEN + name, topic.figures()));
        if (!metrics.isEmpty()) {
            metrics.put(BATCH, Long.toString(batch));
        }
        return metrics;
    }
}
