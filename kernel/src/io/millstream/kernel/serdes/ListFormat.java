package io.millstream.kernel.serdes;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/**
 * The bytes of a list, from the bytes of its elements. Elements of a fixed size follow each other, after the indexes of
 * those that are null. Others are each preceded by their length, which is -1 for null.
 *
 * <p>Source: org.apache.kafka.common.serialization.ListSerializer.
 */
final class ListFormat implements Format {
    private static final int ONE_SIZE = 0;
    private static final int OWN_SIZES = 1;
    private static final int NULL = -1;

    private final int size;

    ListFormat(Description given) {
        size = given.rest().path("size").asInt();
    }

    @Override
    public Object read(byte[] data) {
        try {
            ByteBuffer from = ByteBuffer.wrap(data);
            int strategy = from.get();
            if (strategy != (size > 0 ? ONE_SIZE : OWN_SIZES)) {
                throw new UnreadableException("a list of such elements, as Kafka's ListSerializer writes it");
            }
            Set<Integer> nulls = new HashSet<>();
            for (int count = strategy == ONE_SIZE ? count(from, 4, 0) : 0; count > 0; count--) {
                nulls.add(from.getInt());
            }
            // A null takes no room here: its index was before.
            Object[] elements = new Object[count(from, strategy == ONE_SIZE ? size : 4, nulls.size())];
            for (int i = 0; i < elements.length; i++) {
                int length = strategy == ONE_SIZE ? nulls.contains(i) ? NULL : size : from.getInt();
                if (length != NULL) {
                    if (length < 0 || length > from.remaining()) {
                        throw new UnreadableException("a list that is whole");
                    }
                    byte[] one = new byte[length];
                    from.get(one);
                    elements[i] = one;
                }
            }
            if (from.hasRemaining()) {
                throw new UnreadableException("a list that ends where its record does");
            }
            return new GenericArrayData(elements);
        } catch (BufferUnderflowException error) {
            throw new UnreadableException("a list that is whole (" + error.getClass().getSimpleName() + ")");
        }
    }

    /** The number of elements. There cannot be more than there is room for, besides those that take none. */
    private static int count(ByteBuffer from, int each, int without) {
        int count = from.getInt();
        if (count < 0 || (count - (long) without) * each > from.remaining()) {
            throw new UnreadableException("a list that is whole");
        }
        return count;
    }

    @Override
    public byte[] write(Object value) {
        ArrayData array = (ArrayData) value;
        int nulls = 0;
        int length = 0;
        for (int i = 0; i < array.numElements(); i++) {
            nulls += array.isNullAt(i) ? 1 : 0;
            length += array.isNullAt(i) ? 0 : size > 0 ? size : array.getBinary(i).length;
        }
        int counts = size > 0 ? 4 * (1 + nulls) : 4 * array.numElements();
        ByteBuffer out = ByteBuffer.allocate(1 + counts + 4 + length).put((byte) (size > 0 ? ONE_SIZE : OWN_SIZES));
        if (size > 0) {
            out.putInt(nulls);
            for (int i = 0; i < array.numElements(); i++) {
                if (array.isNullAt(i)) {
                    out.putInt(i);
                }
            }
        }
        out.putInt(array.numElements());
        for (int i = 0; i < array.numElements(); i++) {
            byte[] one = array.isNullAt(i) ? null : array.getBinary(i);
            if (size == 0) {
                out.putInt(one == null ? -1 : one.length);
            }
            if (one != null) {
                out.put(one);
            }
        }
        return out.array();
    }
}
