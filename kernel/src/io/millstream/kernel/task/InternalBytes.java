package io.millstream.kernel.task;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.datasketches.hash.MurmurHash3;
import org.apache.kafka.common.utils.ByteUtils;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/** What Kafka Streams writes into topics between its tasks, as functions of columns. */
public final class InternalBytes {
    /** Sources: SubscriptionSendProcessorSupplier, Murmur3. */
    private static final long SEED = 104_729;
    private static final long[] OF_NOTHING = {0x9d2764a018e32942L, 0x8c3cf3b035938518L};

    private static final byte OLD = 0;
    private static final byte NEW = 1;
    private static final byte BOTH = 2;

    private InternalBytes() {}

    /** The hash of a row's value, in 16 bytes; null for null. */
    public static Column hash(Column value) {
        UDF1<byte[], byte[]> hash = bytes -> bytes == null ? null : hash(bytes);
        return functions.udf(hash, DataTypes.BinaryType).apply(value);
    }

    static byte[] hash(byte[] value) {
        long[] made = value.length == 0 ? OF_NOTHING : MurmurHash3.hash(value, SEED);
        return ByteBuffer.allocate(2 * Long.BYTES)
                .putLong(made[0])
                .putLong(made[1])
                .array();
    }

    /** A change of a table's row; null if it is none. Source: ChangedSerializer. */
    public static Column change(Column now, Column old) {
        UDF2<byte[], byte[], byte[]> change = InternalBytes::change;
        return functions.udf(change, DataTypes.BinaryType).apply(now, old);
    }

    static byte[] change(byte[] now, byte[] old) {
        if (now != null && old != null) {
            int size = ByteUtils.sizeOfVarint(now.length) + now.length + old.length + 1;
            ByteBuffer bytes = ByteBuffer.allocate(size);
            ByteUtils.writeVarint(now.length, bytes);
            return bytes.put(now).put(old).put(BOTH).array();
        }
        byte[] one = now == null ? old : now;
        if (one == null) {
            return null;
        }
        byte[] bytes = Arrays.copyOf(one, one.length + 1);
        bytes[one.length] = now == null ? OLD : NEW;
        return bytes;
    }

    /** The new value of a change; null if it has none. Source: ChangedDeserializer. */
    public static Column newOf(Column change) {
        UDF1<byte[], byte[]> found = bytes -> of(bytes, NEW);
        return functions.udf(found, DataTypes.BinaryType).apply(change);
    }

    /** The old one. */
    public static Column oldOf(Column change) {
        UDF1<byte[], byte[]> found = bytes -> of(bytes, OLD);
        return functions.udf(found, DataTypes.BinaryType).apply(change);
    }

    static byte[] of(byte[] change, byte which) {
        if (change == null || change.length == 0) {
            return null;
        }
        int end = change.length - 1;
        if (change[end] != BOTH) {
            return change[end] == which ? Arrays.copyOf(change, end) : null;
        }
        ByteBuffer bytes = ByteBuffer.wrap(change);
        int length = ByteUtils.readVarint(bytes);
        int middle = bytes.position() + length;
        return which == NEW
                ? Arrays.copyOfRange(change, bytes.position(), middle)
                : Arrays.copyOfRange(change, middle, end);
    }
}
