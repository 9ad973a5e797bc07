package io.millstream.kernel.sink;

import io.millstream.kernel.Partitions;
import io.millstream.kernel.python.Asking;
import io.millstream.kernel.realtime.Batches;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.unsafe.types.UTF8String;

/** Writes the rows of one task. */
final class RecordsWriter implements DataWriter<InternalRow> {
    private static final long KNOWN_FOR = TimeUnit.MINUTES.toNanos(1);
    /** How often records are sent again that nothing is wrong with, before the task fails; a transaction too. */
    private static final int ROUNDS = 100;
    /** So many questions, or bytes of them, go to Python at once. */
    private static final int QUESTIONS = 1000;

    private static final int QUESTION_BYTES = 1 << 22;
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
        /** What a handler wants written in its place; null: none was asked. */
        List<ProducerRecord<byte[], byte[]>> answer;
        /** It is among those that were written; a record that is sent again is so once. */
        boolean counted;
        /** A handler has made it, so it is not asked about it. */
        boolean fromHandler;

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
    private final boolean compresses;
    private final Map<UTF8String, Topic> topics = new HashMap<>();
    /** What has to be sent again when a transaction is; null: nothing ever is. */
    private final List<Sent> kept;

    private Written written = new Written();
    private final Asking asking;
    private final List<byte[]> questions = new ArrayList<>();
    private int questionBytes;
    /** What Kafka's thread has told. */
    private Queue<Failure> failures = new ConcurrentLinkedQueue<>();
    /**
     * What records of a transaction were refused for. When one is refused, the producer gives up batches that it has
     * not sent yet, of whatever topic, and tells the same error of theirs.
     */
    private final Set<Throwable> met = Collections.synchronizedSet(Collections.newSetFromMap(new IdentityHashMap<>()));
    /** Not all of it is about records that may be dropped. */
    private volatile boolean failed;

    RecordsWriter(Rows rows, Options options, Sender sender) {
        this.rows = rows;
        this.options = options;
        this.sender = sender;
        this.batchSize = Long.parseLong(options.kafka().getOrDefault(ProducerConfig.BATCH_SIZE_CONFIG, "16384"));
        String compression = options.kafka().getOrDefault(ProducerConfig.COMPRESSION_TYPE_CONFIG, "none");
        this.compresses = !"none".equals(compression);
        this.kept = options.drops() && sender.isTransaction() ? new ArrayList<>() : null;
        this.asking = options.asking() == null ? null : new Asking(options.asking());
    }

    @Override
    public void write(InternalRow row) {
        if (sender.isWritten()) {
            return;
        }
        if (failed) {
            throw thrown(worst());
        }
        byte[] question = asking == null ? null : rows.questionOf(row);
        if (question == null) {
            add(read(row));
            return;
        }
        questions.add(question);
        questionBytes += question.length;
        if (questions.size() >= QUESTIONS || questionBytes >= QUESTION_BYTES) {
            askAll();
        }
    }

    private void add(Sent sent) {
        if (kept != null) {
            kept.add(sent);
            if (!failures.isEmpty()) {
                return; // the transaction is lost, and all of it will be sent again
            }
        }
        send(sent);
    }

    @Override
    public WriterCommitMessage commit() {
        if (!sender.isWritten()) {
            askAll();
            sender.flush();
            for (int round = 1; !failures.isEmpty(); round++) {
                if (failed || round > ROUNDS) {
                    throw thrown(worst());
                }
                if (kept != null) {
                    sendAllAgain();
                } else {
                    sendBystandersAgain();
                }
            }
            sender.commit();
        }
        sender.close(true);
        return written;
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
        Queue<Failure> queue = failures;
        Throwable refusal = sent.hopeless ? sent.lacking : tooLarge(sent.record);
        if (refusal != null) {
            tell(queue, new Failure(sent, refusal, Verdict.REFUSED));
            return;
        }
        if (!sent.counted) {
            sent.counted = true;
            written.add(sent.record);
        }
        try {
            // A partition that the producer does not know of may be new: it looks, for max.block.ms.
            sender.send(sent.record, (metadata, error) -> {
                if (error != null) {
                    tell(queue, judged(sent, error));
                }
            });
        } catch (KafkaException error) {
            if (kept == null) {
                throw error;
            }
            tell(queue, judged(sent, error));
        }
    }

    private void tell(Queue<Failure> queue, Failure failure) {
        queue.add(failure);
        if (!mayGoOn(failure)) {
            failed = true;
            if (options.realTimeRun() != null) {
                Batches.turn(options.realTimeRun()); // else it is told at the next row, or at the batch's end
            }
        }
    }

    /**
     * What is wrong with a record that is more than its topic takes; null: nothing. It is not sent: when the broker
     * finds a batch too large, Kafka's producer splits it, over and over again where a small record fits in behind a
     * large one (KAFKA-8350). Where it compresses, its estimates part the two, and only it knows how large they get.
     */
    private Throwable tooLarge(ProducerRecord<byte[], byte[]> record) {
        long size = compresses ? 0 : Verdict.size(record);
        if (size <= batchSize) {
            return null;
        }
        long limit = TopicLimits.of(options, record.topic());
        return size <= limit ? null : new RecordTooLargeException("the topic's max.message.bytes is " + limit);
    }

    private Failure judged(Sent sent, Throwable error) {
        if (sent.lacking != null && error instanceof TimeoutException) {
            LACKING.put(options.place(sent.record.topic()), System.nanoTime());
            return new Failure(sent, sent.lacking, Verdict.REFUSED);
        }
        Verdict verdict = Verdict.of(error);
        if (verdict == Verdict.REFUSED && kept != null && (Verdict.isOfABatch(error) || !met.add(error))) {
            verdict = Verdict.BYSTANDER;
        }
        return new Failure(sent, error, verdict);
    }

    /** What this task fails with. */
    private Failure worst() {
        Failure worst = failures.peek();
        for (Failure failure : failures) {
            if (!mayGoOn(failure) && (mayGoOn(worst) || failure.verdict.compareTo(worst.verdict) < 0)) {
                worst = failure;
            }
        }
        return worst;
    }

    private boolean mayGoOn(Failure failure) {
        Sent sent = failure.sent;
        if (sent.fromHandler && failure.verdict == Verdict.REFUSED) {
            return false;
        }
        return switch (failure.verdict) {
            case FENCED, FAILED -> false;
            case BYSTANDER -> options.drops();
            // A dead letter is tried again without its value.
            case REFUSED -> options.drops(sent.record.topic()) && (sent.about == null || sent.about.wholeLetter);
        };
    }

    private RuntimeException thrown(Failure failure) {
        if (failure.verdict.isAboutRecords()) {
            return new RecordRefusedException(
                    Verdict.sentence(failure.sent.record, failure.error), failure.error);
        }
        if (failure.verdict == Verdict.FENCED) {
            return sender.lost(failure.error);
        }
        return failure.error instanceof RuntimeException error ? error : new KafkaException(failure.error);
    }

    /**
     * Drop what was refused, and send the others of its batches again. They may meet what another task sends, and be
     * told again that they were part of a batch.
     */
    private void sendBystandersAgain() {
        Queue<Failure> before = failures;
        failures = new ConcurrentLinkedQueue<>();
        askAboutRefused(before);
        for (Failure failure : before) {
            if (failure.verdict == Verdict.BYSTANDER) {
                send(failure.sent);
            } else {
                drop(refused(failure));
            }
        }
        sender.flush();
    }

    /** Take back the transaction, and send it again without what was refused. */
    private void sendAllAgain() {
        boolean refused = false;
        askAboutRefused(failures);
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
        written = new Written();
        for (Sent sent : kept) {
            sent.counted = false;
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
        if (sent.counted) {
            sent.counted = false;
            written.remove(sent.record);
        }
        if (sent.wholeLetter || kept != null) {
            written.dropped().add(sent.record.topic(), sent.refusal, Verdict.sentence(sent.record, sent.refusal));
        }
        if (sent.answer != null) {
            replaceByAnswer(sent);
            return;
        }
        if (sent.letter != null && options.deadLetterTopic() != null) {
            Sent letter = new Sent(
                    sent.letter.record(options.deadLetterTopic(), sent.record, sent.refusal, sent.wholeLetter), null);
            letter.about = sent;
            send(letter);
        }
    }

    // --- asking --------------------------------------------------------------------------------------

    /** Ask about the records that have failed before they got here, and write what the answers have. */
    private void askAll() {
        if (questions.isEmpty()) {
            return;
        }
        byte[][] answers = asking.ask(questions);
        questions.clear();
        questionBytes = 0;
        for (byte[] data : answers) {
            Answer answer = Answer.of(data);
            answer.letters().forEach(letter -> add(fromHandler(letter)));
            failIf(answer);
        }
    }

    /** Ask about records that Kafka does not take; nobody is asked twice. */
    private void askAboutRefused(Queue<Failure> refused) {
        if (!options.asks()) {
            return;
        }
        List<Sent> about = new ArrayList<>();
        List<byte[]> asked = new ArrayList<>();
        for (Failure failure : refused) {
            Sent sent = failure.sent;
            if (failure.verdict == Verdict.REFUSED && sent.answer == null && sent.letter != null) {
                about.add(sent);
                asked.add(Question.refused(sent.letter, sent.record, failure.error));
            }
        }
        for (int from = 0, to = 0; from < asked.size(); from = to) {
            for (long bytes = 0; to < asked.size() && to - from < QUESTIONS && bytes < QUESTION_BYTES; to++) {
                bytes += asked.get(to).length;
            }
            byte[][] answers = asking.ask(asked.subList(from, to));
            for (int i = 0; i < answers.length; i++) {
                Answer answer = Answer.of(answers[i]);
                about.get(from + i).answer = answer.letters();
                if (answer.fails() && kept == null) {
                    about.subList(0, from + i + 1).forEach(this::replaceByAnswer);
                }
                failIf(answer);
            }
        }
    }

    private void replaceByAnswer(Sent sent) {
        sent.answer.forEach(letter -> send(fromHandler(letter)));
    }

    /** What was written before stays, if it is no transaction; so does what the answer has. */
    private void failIf(Answer answer) {
        if (answer.fails()) {
            if (!sender.isTransaction()) {
                sender.flush();
            }
            throw new RecordFailedException(answer.said());
        }
    }

    private static Sent fromHandler(ProducerRecord<byte[], byte[]> letter) {
        Sent sent = new Sent(letter, null);
        sent.fromHandler = true;
        return sent;
    }
}
