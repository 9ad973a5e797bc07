package io.millstream.kernel.state;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Function;
import org.apache.spark.sql.Row;

/**
 * Rows that are created one after the other, and returned in the same order once all exist. Meanwhile, they are packed
 * into few large arrays; as objects, they would be copied at each garbage collection.
 *
 * <p>Bytes and numbers are packed. Anything else stays an object.
 */
final class PackedResults implements Iterator<Row> {
    private static final int CHUNK = 1 << 18;
    private static final int FIRST = 1 << 10;
    private static final int INT = -1;
    private static final int LONG = -2;
    private static final int OBJECT = -3;
    /** The size of what precedes each value: its column, and its number of bytes or one of the above. */
    private static final int HEAD = 2 * Integer.BYTES;
    /** Instead of a column: the row ends; the next rows are in the next array. */
    private static final int END = -1;

    private static final int NEXT = -2;

    private static final VarHandle INTS =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.nativeOrder());
    private static final VarHandle LONGS =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

    private final int columns;
    private final Function<Object[], Row> made;
    private final ArrayDeque<byte[]> chunks = new ArrayDeque<>();
    private final List<Object> objects = new ArrayList<>();
    private byte[] last = {};
    private int filled;
    private int read;
    private long rows;

    /** @param made converts a row when it is returned */
    PackedResults(int columns, Function<Object[], Row> made) {
        this.columns = columns;
        this.made = made;
    }

    void add(Object[] row) {
        int size = Integer.BYTES;
        for (Object value : row) {
            size += value == null ? 0 : HEAD + (value instanceof byte[] bytes ? bytes.length : Long.BYTES);
        }
        makeRoom(size);
        int place = filled;
        for (int column = 0; column < columns; column++) {
            Object value = row[column];
            if (value != null) {
                INTS.set(last, place, column);
                place = put(place + Integer.BYTES, value);
            }
        }
        INTS.set(last, place, END);
        filled = place + Integer.BYTES;
        rows++;
    }

    private int put(int place, Object value) {
        int content = place + Integer.BYTES;
        if (value instanceof byte[] bytes) {
            INTS.set(last, place, bytes.length);
            System.arraycopy(bytes, 0, last, content, bytes.length);
            return content + bytes.length;
        }
        if (value instanceof Long number) {
            INTS.set(last, place, LONG);
            LONGS.set(last, content, (long) number);
            return content + Long.BYTES;
        }
        if (value instanceof Integer number) {
            INTS.set(last, place, INT);
            INTS.set(last, content, (int) number);
        } else {
            INTS.set(last, place, OBJECT);
            INTS.set(last, content, objects.size());
            objects.add(value);
        }
        return content + Integer.BYTES;
    }

    private void makeRoom(int size) {
        if (filled + size + Integer.BYTES <= last.length) {
            return;
        }
        if (!chunks.isEmpty()) {
            INTS.set(last, filled, NEXT);
        }
        int length = Math.min(CHUNK, Math.max(FIRST, 4 * last.length));
        last = new byte[Math.max(length, size + Integer.BYTES)];
        chunks.add(last);
        filled = 0;
    }

    @Override
    public boolean hasNext() {
        return rows > 0;
    }

    @Override
    public Row next() {
        if (rows == 0) {
            throw new NoSuchElementException();
        }
        byte[] chunk = chunks.element();
        int column = (int) INTS.get(chunk, read);
        if (column == NEXT) {
            chunks.remove();
            chunk = chunks.element();
            read = 0;
            column = (int) INTS.get(chunk, read);
        }
        Object[] row = new Object[columns];
        while (column != END) {
            row[column] = take(chunk);
            column = (int) INTS.get(chunk, read);
        }
        read += Integer.BYTES;
        rows--;
        return made.apply(row);
    }

    /** The value that follows this column. */
    private Object take(byte[] chunk) {
        int kind = (int) INTS.get(chunk, read + Integer.BYTES);
        int content = read + HEAD;
        read = content + (kind >= 0 ? kind : kind == LONG ? Long.BYTES : Integer.BYTES);
        return switch (kind) {
            case LONG -> (Object) (long) LONGS.get(chunk, content);
            case INT -> (Object) (int) INTS.get(chunk, content);
            case OBJECT -> objects.get((int) INTS.get(chunk, content));
            default -> Arrays.copyOfRange(chunk, content, content + kind);
        };
    }
}
