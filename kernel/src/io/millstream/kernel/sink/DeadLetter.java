package io.millstream.kernel.sink;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;

/**
 * What a dead letter says about the record from which a refused one was made.
 *
 * @param asked where the record failed, if the row is about a failed record instead of one to be written; or else
 *     {@link #NOWHERE}
 * @param exception what happened there; the other components likewise
 *
 * <p>Source: KIP-1034, org.apache.kafka.streams.errors.internals.ExceptionHandlerUtils.
 */
public record DeadLetter(
        byte[] key,
        byte[] value,
        String topic,
        int partition,
        long offset,
        String place,
        int asked,
        String exception,
        String message,
        byte[] failedKey,
        byte[] failedValue) {
    static final int NOWHERE = -1;

    private static final String PREFIX = "__streams.errors.";

    /** The dead letter for a refused record; {@code whole}: with the value that was read. */
    ProducerRecord<byte[], byte[]> record(
            String queue, ProducerRecord<byte[], byte[]> refused, Throwable error, boolean whole) {
        String name = error.getClass().getName();
        String sentence = Verdict.sentence(refused, error);
        ProducerRecord<byte[], byte[]> letter =
                new ProducerRecord<>(queue, null, refused.timestamp(), key, whole ? value : null);
        for (Header header : refused.headers()) {
            letter.headers().add(header);
        }
        add(letter, "exception", name);
        add(letter, "message", sentence);
        add(letter, "stacktrace", name + ": " + sentence + "\n\tat " + place);
        add(letter, "topic", topic);
        add(letter, "partition", Integer.toString(partition));
        add(letter, "offset", Long.toString(offset));
        return letter;
    }

    private static void add(ProducerRecord<byte[], byte[]> letter, String name, String text) {
        letter.headers()
                .add(new NamedBytes(PREFIX + name, text == null ? null : text.getBytes(StandardCharsets.UTF_8)));
    }
}
