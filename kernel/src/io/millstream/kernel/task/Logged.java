package io.millstream.kernel.task;

import io.millstream.kernel.Constants;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/**
 * Entries of the state as records of changelogs: the value is the result, as in Kafka Streams; the parts are in a
 * header, if they say more.
 */
final class Logged {
    private static final int IS_NULL = 1;

    private Logged() {}

    /**
     * The record of a change.
     *
     * @param value as the state has it; null for a deletion
     * @param at the time of a deletion
     */
    static ProducerRecord<byte[], byte[]> record(
            TaskPlan.Store store, int partition, byte[] key, byte[] value, long at) {
        if (Held.isFormOf(store)) {
            return Held.record(store, partition, key, value, at);
        }
        String changelog = store.changelog();
        if (value == null) {
            return new ProducerRecord<>(changelog, partition, Math.max(0, at), key, null);
        }
        Entry entry = Entry.of(value);
        List<Header> headers = null;
        if (entry.parts() != null && !store.isOfValues()) {
            byte[] parts = new byte[1 + entry.parts().length];
            parts[0] = (byte) (entry.result() == null ? IS_NULL : 0);
            System.arraycopy(entry.parts(), 0, parts, 1, entry.parts().length);
            headers = List.of(new RecordHeader(Constants.HEADER_PARTS, parts));
        }
        byte[] result = entry.result() == null ? new byte[0] : entry.result();
        return new ProducerRecord<>(changelog, partition, Math.max(0, entry.timestamp()), key, result, headers);
    }

    /**
     * The value that such a record was made of.
     *
     * @param isOurs whether it is of a changelog; headers of other topics mean nothing here
     */
    static byte[] value(ConsumerRecord<byte[], byte[]> record, boolean isOurs) {
        if (record.value() == null) {
            return null;
        }
        Header header = isOurs ? record.headers().lastHeader(Constants.HEADER_PARTS) : null;
        byte[] parts = header == null ? null : header.value();
        if (parts == null || parts.length == 0 || (parts[0] & ~IS_NULL) != 0) { // others may have written the record
            return new Entry(record.timestamp(), null, record.value()).bytes();
        }
        byte[] result = (parts[0] & IS_NULL) == 0 ? record.value() : null;
        return new Entry(record.timestamp(), Arrays.copyOfRange(parts, 1, parts.length), result).bytes();
    }
}
