package io.millstream.kernel.task;

import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * The records of a task's partitions that are fetched and not yet processed: the next one is that with the smallest
 * timestamp among the first ones of all partitions. Source: PartitionGroup.
 */
final class Heads {
    /** So many are fetched ahead of each partition: buffered.records.per.partition. */
    private static final int MOST = 1_000;

    static final class Queue {
        final TopicPartition partition;
        private final ArrayDeque<ConsumerRecord<byte[], byte[]>> records = new ArrayDeque<>();
        /** When it was found to be empty, by the nano time; 0 while it is not. */
        long emptySince;

        Queue(TopicPartition partition) {
            this.partition = partition;
        }

        boolean isEmpty() {
            return records.isEmpty();
        }

        boolean isFull() {
            return records.size() >= MOST;
        }

        private long headTime() {
            return records.peek().timestamp();
        }
    }

    private final Map<TopicPartition, Queue> queues = new HashMap<>();
    /** With Kafka's own kind of queue, so that records of equal times come in the same order as there. */
    private final PriorityQueue<Queue> byTime;

    private int size;

    Heads(List<TopicPartition> partitions) {
        partitions.forEach(each -> queues.put(each, new Queue(each)));
        byTime = new PriorityQueue<>(Math.max(1, queues.size()), Comparator.comparingLong(Queue::headTime));
    }

    void add(TopicPartition partition, List<ConsumerRecord<byte[], byte[]>> records) {
        Queue queue = queues.get(partition);
        boolean wasEmpty = queue.isEmpty();
        queue.records.addAll(records);
        size += records.size();
        if (wasEmpty && !queue.isEmpty()) {
            queue.emptySince = 0;
            byTime.offer(queue);
        }
    }

    /** The next record, which is taken out; null if there is none. */
    ConsumerRecord<byte[], byte[]> next() {
        Queue queue = byTime.poll();
        if (queue == null) {
            return null;
        }
        ConsumerRecord<byte[], byte[]> record = queue.records.poll();
        size--;
        if (!queue.isEmpty()) {
            byTime.offer(queue);
        }
        return record;
    }

    boolean isEmpty() {
        return size == 0;
    }

    /** Whether each partition has a record. */
    boolean areAll() {
        return byTime.size() == queues.size();
    }

    Iterable<Queue> queues() {
        return queues.values();
    }
}
