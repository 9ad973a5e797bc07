package io.millstream.kernel.sink;

import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordBatchTooLargeException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TransactionAbortableException;
import org.apache.kafka.common.errors.TransactionAbortedException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.utils.ByteUtils;
import org.apache.kafka.common.utils.Utils;

/** What an error from sending means for its record. */
enum Verdict {
    /** The broker has aborted the transaction, usually because another producer took over the transactional.id. */
    FENCED,
    /** Not about this record, but about the topic, the cluster or the rights. */
    FAILED,
    /** Kafka refuses this record however often it is sent: production.exception.handler decides. */
    REFUSED,
    /** Another record of the producer's batch, or of the transaction, was refused, and this one with it. */
    BYSTANDER;

    private static final String REJECTED = "One or more records have been rejected";
    private static final String PART_OF_A_BATCH = "because it was part of a batch";
    /** Of a batch of one record: 61 bytes for the batch, and at most 21 for the record. */
    private static final int OVERHEAD = 82;

    boolean isAboutRecords() {
        return this == REFUSED || this == BYSTANDER;
    }

    /** Whether an error is about a whole batch; the faulty records in it have errors of their own. */
    static boolean isOfABatch(Throwable error) {
        return says(error, REJECTED);
    }

    static Verdict of(Throwable error) {
        if (says(error, PART_OF_A_BATCH)) {
            return BYSTANDER; // its class depends on the client's version
        }
        if (error instanceof InvalidRecordException
                || error instanceof RecordTooLargeException
                || error instanceof RecordBatchTooLargeException
                || error instanceof InvalidTimestampException
                || error instanceof NoSuchPartitionException) {
            return REFUSED;
        }
        if (error instanceof ProducerFencedException
                || error instanceof InvalidProducerEpochException
                || error instanceof TransactionAbortableException) {
            return FENCED;
        }
        if (error instanceof TransactionAbortedException) {
            return BYSTANDER;
        }
        if (error.getClass() == KafkaException.class && error.getCause() != null) {
            // From a producer that has failed before; that error is the cause.
            Verdict earlier = of(error.getCause());
            return earlier == REFUSED ? BYSTANDER : earlier;
        }
        return FAILED;
    }

    /** What went wrong with a record, and what to do about it, in one sentence. */
    static String sentence(ProducerRecord<byte[], byte[]> record, Throwable error) {
        return sentence(record, error, false);
    }

    /** The same; {@code complete}: it is a record of a changelog, which no handler may drop. */
    static String sentence(ProducerRecord<byte[], byte[]> record, Throwable error, boolean complete) {
        return "topic '" + record.topic() + "' did not take a record " + sizes(record) + ": "
                + error.getClass().getSimpleName() + ": " + error.getMessage() + "; " + fix(error, complete);
    }

    private static String fix(Throwable error, boolean complete) {
        String drop = complete
                ? "no handler may drop a changelog's record, because the store would lack it"
                : "production.exception.handler=continue drops such records";
        if (error instanceof RecordTooLargeException || error instanceof RecordBatchTooLargeException) {
            String smaller = complete ? "or keep less in each of the store's values; " : "or make records smaller; ";
            return "raise the topic's max.message.bytes and the producer's limit "
                    + "(producer.max.request.size), " + smaller + drop;
        }
        if (error instanceof InvalidTimestampException || says(error, "imestamp")) {
            return "make the topic accept such times (message.timestamp.before.max.ms, "
                    + "message.timestamp.after.max.ms); " + drop;
        }
        if (error instanceof NoSuchPartitionException) {
            return "let the partitioner choose an existing one, or add partitions to the topic; " + drop;
        }
        if (error instanceof InvalidRecordException) {
            return "a compacted topic accepts no record without a key; " + drop;
        }
        return "see the broker's log";
    }

    private static boolean says(Throwable error, String words) {
        return error instanceof KafkaException && String.valueOf(error.getMessage()).contains(words);
    }

    private static String sizes(ProducerRecord<byte[], byte[]> record) {
        int headers = record.headers().toArray().length;
        return "(key: " + bytes(record.key()) + ", value: " + bytes(record.value()) + ", "
                + headers + (headers == 1 ? " header" : " headers") + "; about " + size(record) + " bytes in all)";
    }

    /** The maximum size of a record, alone in its batch and uncompressed; Kafka's producer estimates the same. */
    static long size(ProducerRecord<byte[], byte[]> record) {
        Header[] headers = record.headers().toArray();
        long total = OVERHEAD + size(record.key()) + size(record.value()) + ByteUtils.sizeOfVarint(headers.length);
        for (Header header : headers) {
            int key = Utils.utf8Length(header.key());
            total += ByteUtils.sizeOfVarint(key) + key + size(header.value());
        }
        return total;
    }

    private static long size(byte[] data) {
        return data == null ? 1 : ByteUtils.sizeOfVarint(data.length) + (long) data.length;
    }

    private static String bytes(byte[] data) {
        return data == null ? "null" : data.length + " bytes";
    }
}
