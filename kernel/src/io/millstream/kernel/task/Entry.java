package io.millstream.kernel.task;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * A value of a store as the state keeps it: its timestamp, the parts that go on being merged, and the result that
 * queries read.
 *
 * @param parts null for none
 * @param result null if the aggregate is one, which is not the same as no entry
 */
record Entry(long timestamp, byte[] parts, byte[] result) {
    private static final int HEADER = Long.BYTES + 2 * Integer.BYTES;

    byte[] bytes() {
        int length = parts == null ? 0 : parts.length;
        ByteBuffer bytes = ByteBuffer.allocate(HEADER + length + (result == null ? 0 : result.length))
                .putLong(timestamp)
                .putInt(parts == null ? -1 : length)
                .putInt(result == null ? -1 : result.length);
        if (parts != null) {
            bytes.put(parts);
        }
        if (result != null) {
            bytes.put(result);
        }
        return bytes.array();
    }

    /** As processors have it: the timestamp, and the result. */
    byte[] stamped() {
        return ByteBuffer.allocate(Long.BYTES + result.length)
                .putLong(timestamp)
                .put(result)
                .array();
    }

    static Entry ofStamped(byte[] bytes) {
        return new Entry(ByteBuffer.wrap(bytes).getLong(), null, Arrays.copyOfRange(bytes, Long.BYTES, bytes.length));
    }

    static Entry of(byte[] bytes) {
        ByteBuffer from = ByteBuffer.wrap(bytes);
        long timestamp = from.getLong();
        int parts = from.getInt();
        int result = from.getInt();
        int behind = HEADER + Math.max(0, parts);
        return new Entry(
                timestamp,
                parts < 0 ? null : Arrays.copyOfRange(bytes, HEADER, behind),
                result < 0 ? null : Arrays.copyOfRange(bytes, behind, behind + result));
    }
}
