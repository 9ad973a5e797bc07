package io.millstream.kernel.sink;

import io.millstream.kernel.Constants;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;

/**
 * A handler's answer about a record; see millstream/spark/worker/handler_calls.py.
 *
 * @param fails whether the task has to fail
 * @param said why it fails
 * @param letters the records to write
 */
record Answer(boolean fails, String said, List<ProducerRecord<byte[], byte[]>> letters) {
    static Answer of(byte[] data) {
        ByteBuffer in = ByteBuffer.wrap(data);
        boolean fails = in.get() == Constants.ANSWER_FAIL;
        String said = text(in);
        int count = in.getInt();
        List<ProducerRecord<byte[], byte[]>> letters = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            String topic = text(in);
            byte[] key = bytes(in);
            byte[] value = bytes(in);
            int partition = in.getInt();
            long timestamp = in.getLong();
            Integer chosen = partition < 0 ? null : (Integer) partition;
            Long time = timestamp < 0 ? null : (Long) timestamp;
            letters.add(new ProducerRecord<>(topic, chosen, time, key, value, headers(in)));
        }
        return new Answer(fails, said, letters);
    }

    private static List<Header> headers(ByteBuffer in) {
        int count = in.getInt();
        List<Header> headers = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            headers.add(new NamedBytes(text(in), bytes(in)));
        }
        return headers;
    }

    private static String text(ByteBuffer in) {
        byte[] data = bytes(in);
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    private static byte[] bytes(ByteBuffer in) {
        int size = in.getInt();
        if (size < 0) {
            return null;
        }
        byte[] data = new byte[size];
        in.get(data);
        return data;
    }
}
