package io.millstream.kernel.task;

import io.millstream.kernel.core.Window;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.AbstractMap;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/**
 * What an update that is held back has beside its value; and such updates as records of Kafka Streams' changelog.
 *
 * <p>The changelog's key is the table's: of windows with the start behind it, of sessions with the end and the start.
 * Here both are behind each key. Its value is a context (time, offset, topic, partition and headers), the value before
 * and the old one, which are not known here, the new one, and when it is due. Sources:
 * InMemoryTimeOrderedKeyValueChangeBuffer, BufferValue, ProcessorRecordContext.
 */
final class Held implements Layout.More {
    private static final String WINDOWS = "held windows";
    private static final String SESSIONS = "held sessions";
    private static final int WINDOW = 2 * Long.BYTES;
    private static final int NOTHING = -1;
    private static final String VERSION = "v";
    private static final byte[] LATEST = {3};
    /** Some releases wrote the layout of version 3 with this number; that of version 2 is no longer in use. */
    private static final byte[] ALMOST = {2};

    @Override
    public void write(Window window, DataOutputStream out) throws IOException {
        write(window.updated, window.gone, window.headers, out);
    }

    private static void write(long updated, boolean gone, byte[] headers, DataOutputStream out) throws IOException {
        out.writeLong(updated);
        out.writeBoolean(gone);
        out.writeInt(headers == null ? NOTHING : headers.length);
        if (headers != null) {
            out.write(headers);
        }
    }

    @Override
    public void read(Window window, DataInputStream in) throws IOException {
        window.updated = in.readLong();
        window.gone = in.readBoolean();
        int headers = in.readInt();
        window.headers = headers < 0 ? null : in.readNBytes(headers);
    }

    static boolean isFormOf(TaskPlan.Store store) {
        return store.form().startsWith("held");
    }

    // --- the changelog ---------------------------------------------------------------------------------

    /** @param value as the state has it; null for a deletion */
    static ProducerRecord<byte[], byte[]> record(
            TaskPlan.Store store, int partition, byte[] name, byte[] value, long at) {
        byte[] key = key(store, name);
        if (value == null) {
            return new ProducerRecord<>(store.changelog(), partition, Math.max(0, at), key, null);
        }
        Entry entry = Entry.of(value);
        ByteBuffer more = ByteBuffer.wrap(entry.parts());
        long due = more.getLong();
        more.get();
        byte[] headers = new byte[Math.max(0, more.getInt())];
        more.get(headers);
        int length = entry.result() == null ? 0 : entry.result().length;
        ByteBuffer bytes = ByteBuffer.allocate(4 * Long.BYTES + 7 * Integer.BYTES + headers.length + length);
        bytes.putLong(entry.timestamp()).putLong(0).putInt(0).putInt(partition).putInt(count(headers));
        bytes.put(headers).putInt(NOTHING).putInt(NOTHING);
        bytes.putInt(entry.result() == null ? NOTHING : length);
        if (entry.result() != null) {
            bytes.put(entry.result());
        }
        bytes.putLong(due);
        List<Header> version = List.of(new RecordHeader(VERSION, LATEST));
        byte[] written = Arrays.copyOf(bytes.array(), bytes.position());
        return new ProducerRecord<>(
                store.changelog(), partition, Math.max(0, entry.timestamp()), key, written, version);
    }

    /**
     * The entry that such a record makes, without a value for a deletion; null if there is none.
     *
     * @param names finds an entry that is there, because the key of a window does not say when it ends
     */
    static Map.Entry<byte[], byte[]> entry(
            TaskPlan.Store store, ConsumerRecord<byte[], byte[]> record, Names names) {
        byte[] key = record.key();
        if (record.value() == null) {
            byte[] found = name(store, key, 0);
            if (store.form().equals(WINDOWS)) {
                int length = key.length - Long.BYTES;
                found = names.find(Arrays.copyOf(key, length), Arrays.copyOfRange(key, length, key.length));
            }
            return found == null ? null : new AbstractMap.SimpleImmutableEntry<>(found, null);
        }
        Header version = record.headers().lastHeader(VERSION);
        if (version == null || !Arrays.equals(version.value(), LATEST) && !Arrays.equals(version.value(), ALMOST)) {
            throw new IllegalStateException("an update that " + store.changelog() + " holds back has a format that is "
                    + "not known, at offset " + record.offset() + ": Kafka Streams wrote it before 2.4, or something "
                    + "else did");
        }
        ByteBuffer bytes = ByteBuffer.wrap(record.value());
        long at = bytes.getLong();
        bytes.getLong();
        next(bytes); // the topic
        bytes.getInt();
        int count = bytes.getInt();
        int from = bytes.position();
        for (int left = 2 * count; left > 0; left--) {
            next(bytes);
        }
        byte[] headers = count <= 0 ? null : Arrays.copyOfRange(record.value(), from, bytes.position());
        next(bytes);
        next(bytes);
        byte[] value = next(bytes);
        long due = bytes.getLong();
        byte[] more = Packing.bytes(out -> write(due, value == null, headers, out));
        return new AbstractMap.SimpleImmutableEntry<>(name(store, key, due), new Entry(at, more, value).bytes());
    }

    /** Finds the name of an entry; null if there is none. */
    interface Names {
        byte[] find(byte[] key, byte[] start);
    }

    private static byte[] next(ByteBuffer bytes) {
        int length = bytes.getInt();
        if (length < 0) {
            return null;
        }
        byte[] next = new byte[length];
        bytes.get(next);
        return next;
    }

    private static int count(byte[] headers) {
        int count = 0;
        ByteBuffer bytes = ByteBuffer.wrap(headers);
        for (; bytes.hasRemaining(); count++) {
            next(bytes);
            next(bytes);
        }
        return count;
    }

    private static byte[] key(TaskPlan.Store store, byte[] name) {
        int behind = name.length - WINDOW;
        return switch (store.form()) {
            case SESSIONS -> name;
            case WINDOWS -> ByteBuffer.allocate(behind + Long.BYTES)
                    .put(name, 0, behind)
                    .put(name, behind + Long.BYTES, Long.BYTES)
                    .array();
            default -> Arrays.copyOf(name, behind);
        };
    }

    private static byte[] name(TaskPlan.Store store, byte[] key, long due) {
        return switch (store.form()) {
            case SESSIONS -> key;
            case WINDOWS -> ByteBuffer.allocate(key.length + Long.BYTES)
                    .put(key, 0, key.length - Long.BYTES)
                    .putLong(due) // when it ends
                    .put(key, key.length - Long.BYTES, Long.BYTES)
                    .array();
            default -> Arrays.copyOf(key, key.length + WINDOW);
        };
    }
}
