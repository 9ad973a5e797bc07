package io.millstream.kernel.task;

import io.millstream.kernel.core.Folded;
import io.millstream.kernel.core.SliceState;
import io.millstream.kernel.core.Window;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/** The slices of an item in the state of a task: each window is an entry (see {@link Layout}). */
final class Slices implements SliceState {
    private static final byte[] LAST = new byte[Long.BYTES + 1];

    static {
        Arrays.fill(LAST, (byte) 0xFF);
    }

    private final State state;
    private final int store;
    private final Layout layout;
    private final Content content;
    /** Null if no records wait for a match, or only this store says so. */
    private final Alone alone;
    /** Whether a key whose first part is null has no entry. */
    private final boolean forgetsNull;

    private final boolean wasEmpty;

    Slices(State state, int store, Layout layout, Content content, Alone alone, boolean forgetsNull) {
        this.state = state;
        this.store = store;
        this.layout = layout;
        this.content = content;
        this.alone = alone;
        this.forgetsNull = forgetsNull;
        this.wasEmpty = state.isEmpty(store);
    }

    @Override
    public boolean isEmpty() {
        return wasEmpty;
    }

    @Override
    public ArrayList<Window> read(byte[] key, long slice) {
        byte[][] names = layout.names(key, slice);
        ArrayList<Window> windows = new ArrayList<>(2);
        if (names != null) {
            for (byte[] name : names) {
                byte[] kept = state.get(store, name);
                if (kept != null) {
                    windows.add(window(key, name, kept));
                }
            }
        } else {
            range(key, slice, (name, kept) -> windows.add(window(key, name, kept)));
        }
        return windows.isEmpty() ? null : windows;
    }

    /** Passes on the entries of a slice. Among them in the store are those of longer keys. */
    private void range(byte[] key, long slice, java.util.function.BiConsumer<byte[], byte[]> each) {
        byte[] from = Layout.prefix(key, layout.first(slice));
        long end = layout.first(slice + 1);
        byte[] to = end > 0
                ? Layout.prefix(key, end)
                : ByteBuffer.allocate(key.length + LAST.length).put(key).put(LAST).array();
        int length = key.length + layout.suffix;
        state.range(store, from, to, (name, kept) -> {
            if (name.length == length && Arrays.equals(name, 0, key.length, key, 0, key.length)) {
                each.accept(name, kept);
            }
        });
    }

    private Window window(byte[] key, byte[] name, byte[] kept) {
        Window window =
                content.read(layout, key, ByteBuffer.wrap(name, key.length, name.length - key.length), kept);
        if (alone != null && (window.isOfOthers || window.waits)) { // another program may have emitted it since
            window.waits = alone.has(key, window.start, Entry.of(kept).result());
        }
        window.waited = window.waits;
        return window;
    }

    /** The window of an entry, and the key before its suffix. */
    Window window(byte[] name, byte[] kept) {
        return window(key(name), name, kept);
    }

    byte[] key(byte[] name) {
        return layout.suffix == 0 ? name : Arrays.copyOf(name, name.length - layout.suffix);
    }

    @Override
    public void write(byte[] key, long slice, List<Window> windows, List<Window> removed) {
        for (Window window : removed) {
            state.put(store, layout.name(key, window), null, window.updated);
        }
        boolean isAnyForgotten = false;
        for (Window window : windows) {
            boolean isOnlyAlone = alone != null && window.waited && !window.waits; // which that store says
            if (window.isDirty() && !isOnlyAlone) {
                byte[] value = isForgotten(window) ? null : content.write(layout, key, window);
                isAnyForgotten |= value == null;
                state.put(store, layout.name(key, window), value, layout.deleted(window));
            }
        }
        if (alone != null) {
            alone.settle(key, windows, content);
        }
        if (isAnyForgotten) {
            windows.removeIf(window -> window.isDirty() && isForgotten(window));
        }
    }

    /** Logs the value of a key in a store whose versions are kept. */
    void log(byte[] key, Window window) {
        byte[] result = isForgotten(window) ? null : content.result(key, window);
        byte[] value = null;
        if (result != null) {
            value = layout.kept == Layout.Kept.TABLE
                    ? content.write(layout, window, result)
                    : new Entry(window.at, null, result).bytes();
        }
        state.log(store, key, value, window.at);
    }

    /** Whether a key has no value, because a function returned none, it was deleted, or there were only nulls. */
    private boolean isForgotten(Window window) {
        Object first = window.parts.length == 0 ? null : window.parts[0];
        return forgetsNull && first == null
                || first instanceof Folded folded && folded.bytes() == null
                || layout.kept == Layout.Kept.TABLE && Arrays.stream(window.parts).allMatch(Objects::isNull);
    }

    @Override
    public void drop(byte[] key, long slice, List<Window> windows) {
        if (windows != null) {
            windows.forEach(window -> drop(layout.name(key, window)));
            return;
        }
        byte[][] names = layout.names(key, slice);
        if (names != null) {
            for (byte[] name : names) {
                drop(name);
            }
            return;
        }
        List<byte[]> found = new ArrayList<>();
        range(key, slice, (name, kept) -> found.add(name));
        found.forEach(this::drop);
    }

    void drop(byte[] name) {
        if (layout.isExpiring) {
            state.drop(store, name);
        } else {
            state.put(store, name, null);
        }
    }
}
