package io.millstream.kernel.sink;

import io.millstream.kernel.Partitions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.unsafe.types.UTF8String;

/** Writes the rows of one task. */
final class RecordsWriter implements DataWriter<InternalRow> {
    private static final long KNOWN_FOR = TimeUnit.MINUTES.toNanos(1);
    /** Topics that were found not to have a partition that was chosen, and when. Finding out takes max.block.ms. */
    private static final Map<String, Long> LACKING = new ConcurrentHashMap<>();

    private static final class Topic {
        final String name;
        int planned;
        int partitions;

        Topic(String name) {
            this.name = name;
        }
    }

    /** A record on its way, and what became of it. */
    private static final class Sent {
        final ProducerRecord<byte[], byte[]> record;
        final DeadLetter letter;
        /** Of a dead letter: the record that it is about. */
        Sent about;
        /** The partition that was chosen is not there, as far as the producer knows. */
        NoSuchPartitionException lacking;
        /** It need not be sent, for it was tried a moment ago. */
        boolean hopeless;
        /** Why Kafka does not take it. */
        Throwable refusal;
        /** Its dead letter has room for the value. */
        boolean wholeLetter = true;

        Sent(ProducerRecord<byte[], byte[]> record, DeadLetter letter) {
            this.record = record;
            this.letter = letter;
        }
    }

    private record Failure(Sent sent, Throwable error, Verdict verdict) {}

    private final Rows rows;
    private final Options options;
    private final Sender sender;
    private final long batchSize;
    private final Map<UTF8String, Topic> topics = new HashMap<>();
    /** What has to be sent again when a transaction is; null: nothing ever is. */
    private final List<Sent> kept;

    private Dropped dropped = new Dropped();
    /** What Kafka's thread has told. */
    private Queue<Failure> failures = new ConcurrentLinkedQueue<>();

    RecordsWriter(Rows rows, Options options, Sender sender) {
        this.rows = rows;
        this.options = options;
        this.sender = sender;
        this.batchSize = Long.parseLong(options.kafka().getOrDefault(ProducerConfig.BATCH_SIZE_CONFIG, "16384"));
        this.kept = options.drops() && sender.isTransaction() ? new ArrayList<>() : null;
    }

    @Override
    public void write(InternalRow row) {
        if (sender.isWritten()) {
            return;
        }
        boolean failed = !failures.isEmpty();
        if (failed) {
            failUnlessDropped();
        }
        Sent sent = read(row);
        if (kept != null) {
            kept.add(sent);
            if (failed) {
                return; // the transaction is lost, and all of it will be sent again
            }
        }
        send(sent);
    }

    @Override
    public WriterCommitMessage commit() {
        if (!sender.isWritten()) {
            sender.flush();
            while (!failures.isEmpty()) {
                failUnlessDropped();
                if (kept != null) {
                    sendAgain();
                } else {
                    sendAlone();
                }
            }
            sender.commit();
        }
        sender.close(true);
        return dropped;
    }

    @Override
    public void abort() {
        sender.close(false);
    }

    @Override
    public void close() {
        sender.close(false); // nothing, after a commit
    }

    // --- rows ----------------------------------------------------------------------------------------

    private Sent read(InternalRow row) {
        Topic topic = topicOf(row);
        Integer partition = null;
        NoSuchPartitionException lacking = null;
        boolean hopeless = false;
        if (!row.isNullAt(rows.partition())) {
            int chosen = row.getInt(rows.partition());
            if (chosen < 0 || chosen >= partitions(topic)) {
                lacking = new NoSuchPartitionException(chosen, topic.name, topic.partitions);
                hopeless = chosen < 0 || isKnownToLack(topic.name);
            }
            partition = hopeless ? null : (Integer) chosen;
        } else if (!row.isNullAt(rows.route())) {
            partition = Partitions.of(row.getBinary(rows.route()), planned(topic));
        }
        Sent sent = new Sent(
                new ProducerRecord<>(
                        topic.name,
                        partition,
                        rows.timestampOf(row),
                        Rows.bytes(row, rows.key()),
                        Rows.bytes(row, rows.value()),
                        rows.headersOf(row)),
                options.drops() ? rows.letterOf(row) : null);
        sent.lacking = lacking;
        sent.hopeless = hopeless;
        return sent;
    }

    private Topic topicOf(InternalRow row) {
        UTF8String name = row.getUTF8String(rows.topic());
        Topic topic = topics.get(name);
        if (topic == null) {
            if (name == null) {
                throw new IllegalArgumentException("a row has no topic");
            }
            topic = new Topic(name.toString());
            topics.put(name.clone(), topic);
        }
        return topic;
    }

    /** A topic of the application's own is partitioned as planned, also when somebody gives it more partitions. */
    private int planned(Topic topic) {
        if (topic.planned == 0) {
            Integer told = options.partitions().get(topic.name);
            topic.planned = told == null ? partitions(topic) : told;
        }
        return topic.planned;
    }

    private int partitions(Topic topic) {
        if (topic.partitions == 0) {
            topic.partitions = sender.partitions(topic.name);
        }
        return topic.partitions;
    }

    private boolean isKnownToLack(String topic) {
        Long since = LACKING.get(options.place(topic));
        return since != null && System.nanoTime() - since < KNOWN_FOR;
    }

    // --- sending -------------------------------------------------------------------------------------

    private void send(Sent sent) {
        Queue<Failure> told = failures;
        if (sent.hopeless) {
            told.add(new Failure(sent, sent.lacking, Verdict.REFUSED));
            return;
        }
        try {
            boolean alone = mayBeTooLarge(sent.record);
            if (alone) {
                sender.flush();
            }
            // A partition that the producer does not know of may be new: it looks, for max.block.ms.
            sender.send(sent.record, (metadata, error) -> {
                if (error != null) {
                    told.add(judged(sent, error));
                }
            });
            if (alone) {
                sender.flush();
            }
        } catch (KafkaException error) {
            if (kept == null) {
                throw error;
            }
            told.add(judged(sent, error));
        }
    }

    /**
     * Whether a record may be more than its topic takes. Such a one has to be alone in its batch: when the broker finds a
     * batch too large, Kafka's producer splits it, over and over again where a small record fits in behind a large one.
     */
    private boolean mayBeTooLarge(ProducerRecord<byte[], byte[]> record) {
        long size = Verdict.size(record);
        return size > batchSize && size > TopicLimits.of(options, record.topic());
    }

    private Failure judged(Sent sent, Throwable error) {
        if (sent.lacking != null && error instanceof TimeoutException) {
            LACKING.put(options.place(sent.record.topic()), System.nanoTime());
            return new Failure(sent, sent.lacking, Verdict.REFUSED);
        }
        return new Failure(sent, error, Verdict.of(error));
    }

    /** Throw what this task fails with, if not all that has failed are records to be dropped. */
    private void failUnlessDropped() {
        Failure worst = null;
        for (Failure failure : failures) {
            if (!mayGoOn(failure) && (worst == null || failure.verdict.compareTo(worst.verdict) < 0)) {
                worst = failure;
            }
        }
        if (worst != null) {
            throw thrown(worst);
        }
    }

    private boolean mayGoOn(Failure failure) {
        Sent sent = failure.sent;
        return switch (failure.verdict) {
            case FENCED, FAILED -> false;
            case BYSTANDER -> options.drops();
            // A dead letter is tried again without its value.
            case REFUSED -> options.drops(sent.record.topic()) && (sent.about == null || sent.about.wholeLetter);
        };
    }

    private static RuntimeException thrown(Failure failure) {
        if (failure.verdict.isAboutRecords()) {
            return new RecordRefusedException(
                    Verdict.sentence(failure.sent.record, failure.error), failure.error);
        }
        if (failure.verdict == Verdict.FENCED) {
            return new FencedException("another producer has taken over: " + failure.error.getMessage(), failure.error);
        }
        return failure.error instanceof RuntimeException error ? error : new KafkaException(failure.error);
    }

    /** Drop what was refused, and send each bystander by itself: alone, nobody else spoils it. */
    private void sendAlone() {
        Queue<Failure> told = failures;
        failures = new ConcurrentLinkedQueue<>();
        for (Failure each : told) {
            Failure failure = each;
            if (failure.verdict == Verdict.BYSTANDER) {
                send(failure.sent);
                sender.flush();
                Failure again = failures.poll();
                if (again == null) {
                    continue;
                }
                // Alone there is nobody else to blame.
                Verdict verdict = again.verdict == Verdict.BYSTANDER ? Verdict.REFUSED : again.verdict;
                failure = new Failure(again.sent, again.error, verdict);
                if (!mayGoOn(failure)) {
                    throw thrown(failure);
                }
            }
            drop(refused(failure));
        }
        sender.flush();
    }

    /** Take back the transaction, and send it again without what was refused. */
    private void sendAgain() {
        boolean refused = false;
        for (Failure failure : failures) {
            if (failure.verdict == Verdict.REFUSED) {
                refused(failure);
                refused = true;
            }
        }
        if (!refused) {
            throw thrown(failures.peek());
        }
        sender.restart();
        failures = new ConcurrentLinkedQueue<>();
        dropped = new Dropped();
        for (Sent sent : kept) {
            if (sent.refusal == null) {
                send(sent);
            } else {
                drop(sent);
            }
        }
        sender.flush();
    }

    /** The record that is not written now: of a dead letter that is too long, the one that it is about. */
    private static Sent refused(Failure failure) {
        Sent sent = failure.sent;
        if (sent.about != null) {
            sent.about.wholeLetter = false;
            return sent.about;
        }
        sent.refusal = failure.error;
        return sent;
    }

    private void drop(Sent sent) {
        if (sent.wholeLetter || kept != null) {
            dropped.add(sent.record.topic(), sent.refusal, Verdict.sentence(sent.record, sent.refusal));
        }
        if (sent.letter != null && options.deadLetterTopic() != null) {
            Sent letter = new Sent(
                    sent.letter.record(options.deadLetterTopic(), sent.record, sent.refusal, sent.wholeLetter), null);
            letter.about = sent;
            send(letter);
        }
    }
}
