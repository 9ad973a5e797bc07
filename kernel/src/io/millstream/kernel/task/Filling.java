package io.millstream.kernel.task;

import io.millstream.kernel.python.Processing;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/**
 * A user's processor, written in Python, which fills a global table from the records of its topic. Source:
 * GlobalStateUpdateTask.
 */
final class Filling {
    private final String owner;
    private final Processing.Task processing;

    /** @param table what it reads */
    Filling(TaskPlan.Global global, GlobalTable table) {
        owner = "global table " + UUID.randomUUID();
        processing = new Processing(global.filling(), owner + "/" + global.topic(), true)
                .task(owner, -1, 0, 0, Long.MIN_VALUE, new Rows(table));
    }

    /** What it puts for these records. */
    List<Processing.Put> changes(List<ConsumerRecord<byte[], byte[]>> records) {
        if (records.isEmpty()) {
            return List.of();
        }
        for (ConsumerRecord<byte[], byte[]> record : records) {
            List<Processing.Header> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                headers.add(new Processing.Header(header.key(), header.value()));
            }
            processing.add(new Processing.Input(
                    0,
                    record.key(),
                    record.value(),
                    record.timestamp(),
                    headers,
                    record.topic(),
                    record.partition(),
                    record.offset()));
        }
        return processing.run().changes();
    }

    /** Closes the processor. */
    void end() {
        Processing.end(owner);
    }

    /** Its only store. */
    private record Rows(GlobalTable table) implements Processing.Stores {
        @Override
        public byte[] get(int store, byte[] key) {
            return table.get(key);
        }

        @Override
        public List<byte[]> range(int store, byte[] from, byte[] end, boolean isReverse, int limit) {
            return table.range(from, end, isReverse, limit);
        }

        @Override
        public long count(int store) {
            return table.count();
        }
    }
}
