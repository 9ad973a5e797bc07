package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/** The records of one side of a stream-stream join, while the other side may look for them. */
public final class Records extends Windowed {
    private final long retention;

    /**
     * @param reach how far apart two records of the other side can be in time if both find the same record here
     * @param retention how long a record is found, by the times of its side
     * @param patience the minimum time for which it is kept
     */
    public Records(Task task, long reach, long retention, long patience) {
        super(task, reach / 2, Math.max(2 * retention, patience) + 1);
        this.retention = retention;
    }

    @Override
    protected long moment(Window window) {
        return window.start;
    }

    @Override
    protected void awaitClosing(byte[] key, Window window) {
        throw new UnsupportedOperationException("nothing is emitted as closed");
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        put(key, at, record);
    }

    Window put(byte[] key, long at, Object[] record) {
        clock.streamTime = Math.max(clock.streamTime, at);
        Slice slice = slice(key, at);
        List<Window> same = ofTime(slice, at);
        long number = same.isEmpty() ? 0 : same.get(same.size() - 1).end + 1; // Kafka Streams counts otherwise
        Window window = new Window(at, number, at, record.clone());
        add(slice, window);
        table.mark(slice);
        return window;
    }

    void makeRoom() {
        table.makeRoom();
    }

    /** The records of these times, both included, in the order of their times. */
    List<Window> find(byte[] key, long from, long to) {
        long first = Math.max(from, clock.streamTime - retention + 1);
        List<Window> found = new ArrayList<>();
        for (long number = number(first); number <= number(to); number++) {
            Slice slice = table.slice(key, number);
            for (int place = slice.from(first); place < slice.windows.size(); place++) {
                if (slice.windows.get(place).start > to) {
                    return found;
                }
                found.add(slice.windows.get(place));
            }
        }
        return found;
    }

    /** The records of exactly this time that wait for a match; from now on, they do not. */
    List<Window> takeWaiting(byte[] key, long at) {
        Slice slice = slice(key, at);
        List<Window> taken = new ArrayList<>();
        for (Window window : ofTime(slice, at)) {
            if (window.waits) {
                window.waits = false;
                taken.add(window);
                table.touch(window);
            }
        }
        return taken;
    }

    private static List<Window> ofTime(Slice slice, long at) {
        return slice.windows.subList(slice.from(at), slice.from(at + 1));
    }
}
