package io.millstream.kernel.sink;

import io.millstream.kernel.Constants;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;

/** The question to a handler about a failed record, as bytes; see millstream/spark/worker/handler_calls.py. */
final class Question {
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private final DataOutputStream out = new DataOutputStream(bytes);

    private Question() {}

    /** About a record that failed before it could be written. */
    static byte[] failed(DeadLetter about, String to, Integer partition, Long timestamp, List<Header> headers) {
        byte[] key = about.failedKey();
        return of(about.asked(), about, about.exception(), about.message(), timestamp, to, key, about.failedValue(),
                partition, headers);
    }

    static byte[] refused(DeadLetter about, ProducerRecord<byte[], byte[]> record, Throwable error) {
        return of(Constants.PLACE_REFUSED, about, error.getClass().getName(), Verdict.sentence(record, error),
                record.timestamp(), record.topic(), record.key(), record.value(), record.partition(),
                List.of(record.headers().toArray()));
    }

    private static byte[] of(
            int place, DeadLetter about, String exception, String message, Long timestamp, String to, byte[] key,
            byte[] value, Integer partition, List<Header> headers) {
        Question question = new Question();
        try {
            DataOutputStream out = question.out;
            out.writeInt(place);
            question.add(about.place()).add(exception).add(message).add(about.topic());
            question.add(about.key()).add(about.value());
            out.writeInt(about.partition());
            out.writeLong(about.offset());
            out.writeLong(timestamp == null ? -1 : timestamp);
            question.add(to).add(key).add(value);
            out.writeInt(partition == null ? -1 : partition);
            out.writeInt(headers == null ? 0 : headers.size());
            for (Header header : headers == null ? List.<Header>of() : headers) {
                question.add(header.key()).add(header.value());
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return question.bytes.toByteArray();
    }

    private Question add(String text) throws IOException {
        return add(text == null ? null : text.getBytes(StandardCharsets.UTF_8));
    }

    private Question add(byte[] data) throws IOException {
        out.writeInt(data == null ? -1 : data.length);
        if (data != null) {
            out.write(data);
        }
        return this;
    }
}
