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
import org.apache.spark.sql.types.DataType;

/** What an item keeps of a window, in bytes: its parts. */
final class Content {
    private final Packing[] packings;
    /** For each part, whether it is a fold; and the number of the item whose functions compute it. */
    private final boolean[] folded;

    private final int fold;
    private final Folds folds;
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
    private final DataOutputStream out = new DataOutputStream(bytes);

    Content(List<DataType> types, List<String> rules, int fold, Folds folds) {
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

    byte[] write(Layout layout, Window window, byte[] result) {
        try {
            bytes.reset();
            if (layout.more != null) {
                layout.more.write(window, out);
            }
            write(window.parts);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        byte[] written = bytes.toByteArray();
        long at = layout.timestamp(window);
        return (layout.isTable ? new Entry(at, written, result) : new Entry(at, null, written)).bytes();
    }

    private void write(Object[] parts) throws IOException {
        for (int i = 0; i < packings.length; i++) {
            packings[i].write(parts[i] instanceof Encoded encoded ? encoded.bytes() : parts[i], out);
        }
    }

    Window read(Layout layout, byte[] key, ByteBuffer name, byte[] kept) {
        Entry entry = Entry.of(kept);
        byte[] written = layout.isTable ? entry.parts() : entry.result();
        try (DataInputStream in = Packing.from(written)) {
            Window window = layout.window(name, entry.timestamp(), new Object[packings.length]);
            if (layout.more != null) {
                layout.more.read(window, in);
            }
            for (int i = 0; i < packings.length; i++) {
                Object part = packings[i].read(in);
                window.parts[i] = folded[i] ? folds.kept(fold, key, (byte[]) part) : part;
            }
            return window;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Parts without a window. */
    byte[] write(long at, Object[] parts) {
        try {
            bytes.reset();
            write(parts);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Entry(at, null, bytes.toByteArray()).bytes();
    }

    Window read(byte[] kept) {
        Entry entry = Entry.of(kept);
        Object[] parts = new Object[packings.length];
        try (DataInputStream in = Packing.from(entry.result())) {
            for (int i = 0; i < parts.length; i++) {
                parts[i] = packings[i].read(in);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Window(0, 0, entry.timestamp(), parts);
    }
}
