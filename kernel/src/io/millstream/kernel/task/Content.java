package io.millstream.kernel.task;

import io.millstream.kernel.core.Encoded;
import io.millstream.kernel.core.Folds;
import io.millstream.kernel.core.Window;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;

/** What an item keeps of a window, in bytes: its parts, or a value that says them. */
final class Content {
    private static final byte[] NOTHING = {};
    private final Packing[] packings;
    /** For each part, whether it is a fold; and the number of the item whose functions compute it. */
    private final boolean[] folded;

    private final int fold;
    private final Folds folds;
    /** Null if nobody reads what is kept. */
    private final Values values;
    /** Its name in messages. */
    private final String place;

    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
    private final DataOutputStream out = new DataOutputStream(bytes);

    /** The values of a store, in bytes, which others read and may have written. */
    interface Values {
        byte[] of(byte[] key, Window window);

        /** The parts that make a value; null if it does not say them. */
        InternalRow parts(byte[] key, Window window, byte[] value, int count);
    }

    Content(List<DataType> types, List<String> rules, int fold, Folds folds, Values values, String place) {
        this.values = values;
        this.place = place;
        packings = new Packing[types.size()];
        folded = new boolean[packings.length];
        for (int i = 0; i < packings.length; i++) {
            packings[i] = Packing.of(types.get(i));
            folded[i] = rules.get(i).equals("fold");
        }
        this.fold = fold;
        this.folds = folds;
    }

    int size() {
        return packings.length;
    }

    Packing packing(int part) {
        return packings[part];
    }

    /** A part of a record, as the item's rule gets it. */
    Object given(int part, byte[] key, Object value) {
        return folded[part] ? folds.record(fold, key, (byte[]) value) : value;
    }

    /** A part before the first record; null if it is no fold. */
    Object initial(int part, byte[] key) {
        return folded[part] ? folds.initial(fold, key) : null;
    }

    byte[] write(Layout layout, byte[] key, Window window) {
        boolean hasResult = layout.kept != Layout.Kept.PARTS && values != null && !window.gone;
        return write(layout, window, hasResult ? result(key, window) : null);
    }

    /** The value of a window that others read. */
    byte[] result(byte[] key, Window window) {
        return values.of(key, window);
    }

    byte[] write(Layout layout, Window window, byte[] result) {
        try {
            bytes.reset();
            if (layout.more != null) {
                layout.more.write(window, out);
            }
            if (layout.kept != Layout.Kept.VALUE) {
                write(window.parts);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Entry(layout.timestamp(window), bytes.toByteArray(), result).bytes();
    }

    private void write(Object[] parts) throws IOException {
        for (int i = 0; i < packings.length; i++) {
            packings[i].write(parts[i] instanceof Encoded encoded ? encoded.bytes() : parts[i], out);
        }
    }

    Window read(Layout layout, byte[] key, ByteBuffer name, byte[] kept) {
        Entry entry = Entry.of(kept);
        byte[] written = entry.parts();
        if (written == null && layout.kept == Layout.Kept.PARTS) {
            throw unknown();
        }
        Window window = layout.window(name, entry.timestamp(), new Object[packings.length]);
        window.isOfOthers = written == null; // its record in the changelog says no more than its value
        boolean isSaid = written == null || layout.kept == Layout.Kept.VALUE;
        InternalRow said = isSaid && entry.result() != null ? said(key, window, entry.result()) : null;
        try (DataInputStream in = Packing.from(written == null ? NOTHING : written)) {
            if (written != null && layout.more != null) {
                layout.more.read(window, in);
            }
            for (int i = 0; i < packings.length; i++) {
                Object part = null;
                if (!isSaid) {
                    part = packings[i].read(in);
                } else if (said != null) {
                    part = packings[i].read(said, i);
                }
                window.parts[i] = folded[i] ? folds.kept(fold, key, (byte[]) part) : part;
            }
            return window;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private InternalRow said(byte[] key, Window window, byte[] value) {
        InternalRow parts = values == null ? null : values.parts(key, window, value, packings.length);
        if (parts == null) {
            throw unknown();
        }
        return parts;
    }

    private IllegalStateException unknown() {
        return new IllegalStateException(place + ": its store has a value that another program has written, such as "
                + "Kafka Streams, and that does not say enough to go on; `millstream takeover` says which stores can "
                + "be taken over; reset the application to compute them anew");
    }
}
