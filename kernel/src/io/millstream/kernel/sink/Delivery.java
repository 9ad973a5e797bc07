package io.millstream.kernel.sink;

import io.millstream.kernel.python.Asking;
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
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Sends records, and sees to what becomes of them: what Kafka refuses is dropped, sent again or asked about, as the
 * options say. What fails for good is thrown by the next call. Used by one thread.
 */
public final class Delivery {
    private static final long KNOWN_FOR = TimeUnit.MINUTES.toNanos(1);
    /** How often faultless records, or a transaction, are sent again before the task fails. */
    private static final int ROUNDS = 100;
    /** The number of questions, and of their bytes, that go to Python at once. */
    private static final int QUESTIONS = 1000;

    private static final int QUESTION_BYTES = 1 << 22;
    /** How long they, and refused records, wait for others. */
    private static final long LONGEST_WAIT = TimeUnit.MILLISECONDS.toNanos(100);
    /** Topics that turned out to lack a chosen partition, and when. Finding out takes max.block.ms. */
    private static final Map<String, Long> LACKING = new ConcurrentHashMap<>();

    private static final class Topic {
        final UTF8String bytes;
        final String name;
        int partitions;

        Topic(UTF8String bytes) {
            this.bytes = bytes;
            this.name = bytes.toString();
        }
    }

    /** A record that is being sent, and what became of it. */
    private static final class Sent {
        final ProducerRecord<byte[], byte[]> record;
        final DeadLetter letter;
        /** For a dead letter, the record that it is about. */
        Sent about;
        /** As far as the producer knows, the chosen partition does not exist. */
        NoSuchPartitionException lacking;
        /** It need not be sent, because that was tried a moment ago. */
        boolean hopeless;
        /** Why Kafka refuses it. */
        Throwable refusal;
        /** Its dead letter has room for the value. */
        boolean wholeLetter = true;
        /** What a handler wants to write in its place; null if none was asked. */
        List<ProducerRecord<byte[], byte[]>> answer;
        /** It is counted as written; a record that is sent again is counted once. */
        boolean counted;
        /** A handler has created it, so it is not asked about it. */
        boolean fromHandler;

        Sent(ProducerRecord<byte[], byte[]> record, DeadLetter letter) {
            this.record = record;
            this.letter = letter;
        }
    }

    private record Failure(Sent sent, Throwable error, Verdict verdict) {}

    private final Options options;
    private final Sender sender;
    private final long batchSize;
    private final boolean compresses;
    private final Map<UTF8String, Topic> topics = new HashMap<>();
    /** That of the record before. */
    private Topic last;
    /** What has to be sent again if the transaction is repeated; null if there is none. */
    private final List<Sent> kept;

    private Written written = new Written();
    private final Asking asking;
    /** Is told, on Kafka's thread, that something has failed for good; and what, if it wants to know. */
    private final Consumer<Supplier<RuntimeException>> failing;

    private final List<byte[]> questions = new ArrayList<>();
    private int questionBytes;
    /** Since when something waits to be settled, by the nano time; 0 if nothing does. */
    private long since;
    /** What Kafka's thread has reported. */
    private Queue<Failure> failures = new ConcurrentLinkedQueue<>();
    /**
     * The errors for which records of a transaction were refused. When one is refused, the producer gives up batches of
     * any topic that it has not sent yet, and reports the same error for them.
     */
    private final Set<Throwable> met = Collections.synchronizedSet(Collections.newSetFromMap(new IdentityHashMap<>()));
    /** Whether some failures are not about records that may be dropped. */
    private volatile boolean failed;

    public Delivery(Options options, Sender sender, Consumer<Supplier<RuntimeException>> failing) {
        this.options = options;
        this.sender = sender;
        this.failing = failing;
        this.batchSize = Long.parseLong(options.kafka().getOrDefault(ProducerConfig.BATCH_SIZE_CONFIG, "16384"));
        String compression = options.kafka().getOrDefault(ProducerConfig.COMPRESSION_TYPE_CONFIG, "none");
        this.compresses = !"none".equals(compression);
        this.kept = options.drops() && sender.isRepeated() ? new ArrayList<>() : null;
        this.asking = options.asking() == null ? null : new Asking(options.asking());
    }

    /** Send what a row has, or ask about it. */
    public void write(InternalRow row, Rows rows) {
        if (failed) {
            throw thrown(worst());
        }
        byte[] question = asking == null ? null : rows.questionOf(row);
        if (question == null) {
            add(read(row, rows));
            return;
        }
        questions.add(question);
        questionBytes += question.length;
        if (questions.size() >= QUESTIONS || questionBytes >= QUESTION_BYTES) {
            askAll();
        }
    }

    /**
     * Whether there is something to settle: a question, or a record that was refused.
     *
     * @param isIdle whether there is nothing else to do; if there is, it can wait a moment for others
     */
    public boolean isDue(boolean isIdle) {
        if (questions.isEmpty() && failures.isEmpty()) {
            since = 0;
            return false;
        }
        since = since == 0 ? System.nanoTime() : since;
        return isIdle || System.nanoTime() - since >= LONGEST_WAIT;
    }

    /** Whether what was sent since {@link #settled} may have to be sent again. */
    public boolean keeps() {
        return kept != null;
    }

    private void add(Sent sent) {
        if (kept != null) {
            kept.add(sent);
            if (!failures.isEmpty()) {
                return; // the transaction is lost, and will be sent again as a whole
            }
        }
        send(sent);
    }

    /** Wait until Kafka has taken everything, or it is known what becomes of the rest. */
    public void settle() {
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
    }

    /** What was written is permanent: returns what it was, and forgets it. */
    public Written settled() {
        Written all = written;
        written = new Written();
        met.clear();
        if (kept != null) {
            kept.clear();
        }
        return all;
    }

    // --- rows ----------------------------------------------------------------------------------------

    private Sent read(InternalRow row, Rows rows) {
        Topic topic = topicOf(row, rows);
        Integer partition = null;
        NoSuchPartitionException lacking = null;
        boolean hopeless = false;
        if (!row.isNullAt(rows.partition())) {
            int chosen = row.getInt(rows.partition());
            if (chosen < 0 || chosen >= partitions(topic, chosen)) {
                lacking = new NoSuchPartitionException(chosen, topic.name, topic.partitions);
                hopeless = chosen < 0 || isKnownToLack(topic.name);
            }
            partition = hopeless ? null : (Integer) chosen;
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

    private Topic topicOf(InternalRow row, Rows rows) {
        UTF8String name = row.getUTF8String(rows.topic());
        if (last != null && last.bytes.equals(name)) {
            return last;
        }
        Topic topic = topics.get(name);
        if (topic == null) {
            if (name == null) {
                throw new IllegalArgumentException("a row has no topic");
            }
            topic = new Topic(name.clone());
            topics.put(topic.bytes, topic);
        }
        last = topic;
        return topic;
    }

    /** How many partitions a topic has; there may be more by now if it should have one of this number. */
    private int partitions(Topic topic, int number) {
        if (topic.partitions <= number) {
            topic.partitions = sender.partitions(topic.name);
        }
        return topic.partitions;
    }

    private boolean isKnownToLack(String topic) {
        Long lackingSince = LACKING.get(options.place(topic));
        return lackingSince != null && System.nanoTime() - lackingSince < KNOWN_FOR;
    }

    // --- sending -------------------------------------------------------------------------------------

    private void send(Sent sent) {
        Queue<Failure> queue = failures;
        Throwable refusal = sent.hopeless ? sent.lacking : tooLarge(sent.record);
        if (refusal != null) {
            report(queue, new Failure(sent, refusal, Verdict.REFUSED));
            return;
        }
        if (!sent.counted) {
            sent.counted = true;
            written.add(sent.record);
        }
        try {
            // A partition that the producer does not know may be new: the producer looks for up to max.block.ms.
            sender.send(sent.record, (metadata, error) -> {
                if (error != null) {
                    report(queue, judged(sent, error));
                }
            });
        } catch (KafkaException error) {
            if (kept == null) {
                throw error;
            }
            report(queue, judged(sent, error));
        }
    }

    private void report(Queue<Failure> queue, Failure failure) {
        queue.add(failure);
        if (!mayContinue(failure)) {
            failed = true;
            failing.accept(() -> thrown(failure));
        }
    }

    /**
     * The error for a record that is too large for its topic; null if it is not. Such a record is not sent: when the
     * broker finds a batch too large, Kafka's producer splits it, and does so forever if a small record fits in behind
     * a large one (KAFKA-8350). If the producer compresses, its estimates separate the two, and only it knows their
     * compressed sizes.
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

    /** The failure to fail with. */
    private Failure worst() {
        Failure worst = failures.peek();
        for (Failure failure : failures) {
            if (!mayContinue(failure) && (mayContinue(worst) || failure.verdict.compareTo(worst.verdict) < 0)) {
                worst = failure;
            }
        }
        return worst;
    }

    private boolean mayContinue(Failure failure) {
        Sent sent = failure.sent;
        if (sent.fromHandler && failure.verdict == Verdict.REFUSED) {
            return false;
        }
        return switch (failure.verdict) {
            case FENCED, FAILED -> false;
            case BYSTANDER -> options.drops();
            // A dead letter is sent again without its value.
            case REFUSED -> options.drops() && (sent.about == null || sent.about.wholeLetter);
        };
    }

    private RuntimeException thrown(Failure failure) {
        if (failure.verdict.isAboutRecords()) {
            return new RecordRefusedException(Verdict.sentence(failure.sent.record, failure.error), failure.error);
        }
        if (failure.verdict == Verdict.FENCED) {
            return sender.lost(failure.error);
        }
        return failure.error instanceof RuntimeException error ? error : new KafkaException(failure.error);
    }

    /**
     * Drop what was refused, and send the other records of its batches again. They may share a batch with another
     * task's records, and fail again because they were part of a batch.
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

    /** Abort the transaction, and send it again without what was refused. */
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

    /** The record that is not written now; for a dead letter that is too long, the record that it is about. */
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

    /** Ask about the records that failed earlier, and write what the answers contain. */
    public void askAll() {
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

    /** Ask about records that Kafka refuses, once for each. */
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
                if (answer.fails() && !sender.isTransaction()) {
                    about.subList(0, from + i + 1).forEach(this::replaceByAnswer);
                }
                failIf(answer);
            }
        }
    }

    private void replaceByAnswer(Sent sent) {
        sent.answer.forEach(letter -> send(fromHandler(letter)));
    }

    /** Without a transaction, what was written before stays, and so does what the answer contains. */
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
