package io.millstream.kernel.core;

import java.util.List;

/**
 * Records of a stream that look up a row once stream time is beyond them by a grace period: until then, the table may
 * still learn what it had at their time. They are ordered by time, then key, then arrival.
 *
 * <p>The stream time is that of these records alone. Sources: KStreamKTableJoinProcessor,
 * RocksDBTimeOrderedKeyValueBuffer.
 */
public final class Waiting extends Core {
    private final Due waiting;
    private final long grace;
    private final Lookup lookup;

    public Waiting(Task task, long grace, Lookup lookup) {
        super(task);
        this.waiting = task.closing();
        this.grace = grace;
        this.lookup = lookup;
    }

    @Override
    protected Slice place(byte[] key, Window window) {
        throw new UnsupportedOperationException("what waits is in no changelog of its stream");
    }

    @Override
    public boolean derive(byte[] key, Window window) {
        waiting.add(window.start + grace, key, window.start);
        return true;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        if (key == null || at < clock.streamTime - grace) {
            lookup.record(key, at, record);
            return;
        }
        clock.streamTime = Math.max(clock.streamTime, at);
        Slice slice = table.slice(key, at);
        if (slice.windows.isEmpty()) {
            waiting.add(at + grace, key, at);
        }
        table.add(slice, new Window(at, slice.windows.size(), at, record.clone()));
        table.mark(slice);
        waiting.take(clock.streamTime).forEach(this::release);
    }

    private void release(Due.Entry entry) {
        table.makeRoom();
        for (Window window : List.copyOf(table.slice(entry.key(), entry.number()).windows)) {
            lookup.record(entry.key(), window.at, window.parts);
        }
        table.drop(entry.key(), entry.number());
    }

    @Override
    public void finish() {
        super.finish();
        waiting.flush();
    }
}
