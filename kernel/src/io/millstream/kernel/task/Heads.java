package io.millstream.kernel.task;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.PriorityQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.utils.Utils;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The records of a task's partitions that are fetched and not yet processed: the next one is that with the smallest
 * timestamp among the first ones of all partitions. Source: PartitionGroup.
 */
final class Heads {
    /** The value of max.task.idle.ms with which no partition is waited for. */
    static final long NO_WAIT = -1;

    static final class Queue {
        private static final long NOT = Long.MIN_VALUE;

        final TopicPartition partition;
        private final UTF8String topic;
        private final ArrayDeque<ConsumerRecord<byte[], byte[]>> records = new ArrayDeque<>();
        /** Until when it is waited for, by the nano time. */
        private long deadline = NOT;
        /** The greatest timestamp of the records that were taken out. */
        private long time;
        /** That of the first one. */
        private long headTime;
        /** The offset behind the last one that was taken out; -1 if none was. */
        private long next = -1;
        /** How many bytes the records had that were taken out since that was last asked. */
        private long bytes;
        /** What each record has besides: its topic, partition, offset and timestamp. */
        private final int besides;

        Queue(TopicPartition partition, long time) {
            this.partition = partition;
            this.topic = UTF8String.fromString(partition.topic());
            this.time = time;
            this.besides = Utils.utf8Length(partition.topic()) + Integer.BYTES + 2 * Long.BYTES;
        }

        /** Source: ClientUtils.consumerRecordSizeInBytes. */
        private void count(ConsumerRecord<byte[], byte[]> record) {
            bytes += besides + Math.max(0, record.serializedKeySize()) + Math.max(0, record.serializedValueSize());
            for (Header header : record.headers()) {
                bytes += Utils.utf8Length(header.key()) + (header.value() == null ? 0 : header.value().length);
            }
        }

        long takeBytes() {
            long found = bytes;
            bytes = 0;
            return found;
        }

        boolean isEmpty() {
            return records.isEmpty();
        }

        int size() {
            return records.size();
        }

        long time() {
            return time;
        }

        long next() {
            return next;
        }

        private long headTime() {
            return headTime;
        }
    }

    private final Map<TopicPartition, Queue> queues = new HashMap<>();
    /** With Kafka's own kind of queue, so that records of equal times come in the same order as there. */
    private final PriorityQueue<Queue> byTime;

    private final long idleMs;
    private final Function<TopicPartition, OptionalLong> lags;
    private final Times.Clock clock;
    private long streamTime = OffsetNotes.NO_TIME;
    private long time;
    private UTF8String topic;

    /**
     * For these partitions.
     *
     * @param times the greatest timestamps of records that were processed before
     * @param idleMs max.task.idle.ms
     * @param lags how many records of a partition are on the broker and not here; nothing if that is not known
     * @param clock the times of records
     */
    Heads(
            Collection<TopicPartition> partitions,
            Map<TopicPartition, Long> times,
            long idleMs,
            Function<TopicPartition, OptionalLong> lags,
            Times.Clock clock) {
        partitions.forEach(each -> {
            Queue queue = new Queue(each, times.getOrDefault(each, OffsetNotes.NO_TIME));
            queues.put(each, queue);
            streamTime = Math.max(streamTime, queue.time);
        });
        byTime = new PriorityQueue<>(Math.max(1, queues.size()), Comparator.comparingLong(Queue::headTime));
        this.idleMs = idleMs;
        this.lags = lags;
        this.clock = clock;
    }

    void add(TopicPartition partition, List<ConsumerRecord<byte[], byte[]>> records) {
        Queue queue = queues.get(partition);
        boolean wasEmpty = queue.isEmpty();
        queue.records.addAll(records);
        if (wasEmpty && !queue.isEmpty()) {
            queue.deadline = Queue.NOT;
            stamp(queue);
            byTime.offer(queue);
        }
    }

    private void stamp(Queue queue) {
        queue.headTime = clock.time(queue.records.peek(), queue.time);
    }

    /**
     * Whether the record with the smallest timestamp can be known now: each partition has one, or none is expected.
     * Source: PartitionGroup.readyToProcess.
     */
    boolean isReady(long now) {
        if (byTime.size() == queues.size() || idleMs == NO_WAIT) {
            return !byTime.isEmpty();
        }
        for (Queue queue : queues.values()) { // also if there is no record: the time to wait begins before the first
            if (queue.isEmpty() && isAwaited(queue, now)) {
                return false;
            }
        }
        return !byTime.isEmpty();
    }

    private boolean isAwaited(Queue queue, long now) {
        OptionalLong lag = lags.apply(queue.partition);
        if (lag.isEmpty() || lag.getAsLong() > 0) {
            queue.deadline = Queue.NOT;
            return true;
        }
        if (queue.deadline == Queue.NOT) {
            queue.deadline = now + TimeUnit.MILLISECONDS.toNanos(idleMs);
        }
        return now - queue.deadline < 0;
    }

    /** The next record, which is taken out; null if there is none. */
    ConsumerRecord<byte[], byte[]> next() {
        boolean isAlone = byTime.size() == 1; // then it keeps its place
        Queue queue = isAlone ? byTime.peek() : byTime.poll();
        if (queue == null) {
            return null;
        }
        ConsumerRecord<byte[], byte[]> record = queue.records.poll();
        time = queue.headTime;
        topic = queue.topic;
        queue.time = Math.max(queue.time, time);
        queue.next = record.offset() + 1;
        queue.count(record);
        streamTime = Math.max(streamTime, queue.time);
        if (!queue.isEmpty()) {
            stamp(queue);
        }
        if (isAlone && queue.isEmpty()) {
            byTime.clear();
        } else if (!isAlone && !queue.isEmpty()) {
            byTime.offer(queue);
        }
        return record;
    }

    /** That of the record that was taken out last. */
    long time() {
        return time;
    }

    /** Its topic. */
    UTF8String topic() {
        return topic;
    }

    boolean isEmpty() {
        return byTime.isEmpty();
    }

    long streamTime() {
        return streamTime;
    }

    Collection<Queue> queues() {
        return queues.values();
    }
}
