package io.millstream.kernel.sink;

import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordBatchTooLargeException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.TransactionAbortableException;
import org.apache.kafka.common.errors.TransactionAbortedException;

/** Prints what errors mean, and the sentence about a record that one of them says. */
public final class VerdictMain {
    private VerdictMain() {}

    public static void main(String[] arguments) {
        List<Exception> errors = List.of(
                new RecordTooLargeException("m"),
                new RecordBatchTooLargeException("m"),
                new InvalidTimestampException("m"),
                new InvalidRecordException("m"),
                new NoSuchPartitionException(9, "out", 3),
                new KafkaException(
                        "Failed to append record because it was part of a batch which had one more more "
                                + "invalid records"),
                new TransactionAbortedException("m"),
                new KafkaException("in an error state", new RecordTooLargeException("m")),
                new ProducerFencedException("m"),
                new InvalidProducerEpochException("m"),
                new TransactionAbortableException("m"),
                new KafkaException("in an error state", new ProducerFencedException("m")),
                new TimeoutException("m"),
                new TopicAuthorizationException("out"),
                new KafkaException("in an error state", new TimeoutException("m")),
                new IllegalStateException("m"));
        for (Exception error : errors) {
            System.out.println(error.getClass().getSimpleName() + " " + Verdict.of(error));
        }
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>("out", null, new byte[2000]);
        record.headers().add("h", new byte[10]);
        System.out.println(Verdict.sentence(record, new RecordTooLargeException("too large for the broker"), true));
        System.out.println(Verdict.sentence(record, new RecordTooLargeException("too large for the broker")));
        System.out.println(Verdict.sentence(record, new NoSuchPartitionException(9, "out", 3)));
        System.out.println(Verdict.sentence(record, new InvalidRecordException("Timestamp 9 is out of range")));
        System.out.println(Verdict.sentence(record, new InvalidRecordException("Compacted topic, no key")));
    }
}
