package io.millstream.kernel.task;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.DBOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * What a task knows: for each of its stores an ordered map of bytes, in one RocksDB.
 *
 * <p>Changes stay in memory until they are committed: logged by the task's transaction, and only then written to disk,
 * in one step with the position in the changelogs up to which the disk is complete. So a crash leaves nothing there
 * that is not committed.
 */
@SuppressWarnings("resource") // all are closed with it
final class State implements AutoCloseable {
    private static final byte[] POSITIONS = "positions".getBytes(StandardCharsets.UTF_8);
    /** Among changes: a key that is deleted here, but not in the changelog, which forgets it by itself. */
    private static final byte[] DROPPED = new byte[0];

    private static final class Part {
        final TaskPlan.Store store;
        ColumnFamilyHandle family;
        /** What is kept if it is not on disk. */
        final TreeMap<byte[], byte[]> kept;
        /** What has changed since the last commit; null for a deleted key, or DROPPED. */
        final TreeMap<byte[], byte[]> changes = new TreeMap<>(Arrays::compareUnsigned);
        /** The next offset of its changelog that is not in it. */
        long position;
        /** Over what was on disk at the last commit; null if it is not open. */
        RocksIterator entries;
        /** Whether it is in use. */
        boolean isInUse;

        Part(TaskPlan.Store store) {
            this.store = store;
            this.kept = store.isInMemory() ? new TreeMap<>(Arrays::compareUnsigned) : null;
        }
    }

    private final List<Part> parts = new ArrayList<>();
    private RocksDB database;
    private ColumnFamilyHandle positions;
    private final List<AutoCloseable> open = new ArrayList<>();
    private WriteOptions writing;
    private long changedBytes;

    State(List<TaskPlan.Store> stores, Path directory) {
        stores.forEach(store -> parts.add(new Part(store)));
        if (stores.stream().allMatch(TaskPlan.Store::isInMemory)) {
            return;
        }
        try {
            Files.createDirectories(directory);
            openDatabase(directory);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (RocksDBException error) {
            throw failed(error);
        }
    }

    private void openDatabase(Path directory) throws RocksDBException {
        RocksDB.loadLibrary();
        writing = new WriteOptions();
        open.add(writing);
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        families.add(new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY, Memory.family()));
        families.add(new ColumnFamilyDescriptor(POSITIONS, Memory.family()));
        for (Part part : parts) {
            if (part.kept == null) {
                byte[] name = part.store.name().getBytes(StandardCharsets.UTF_8);
                families.add(new ColumnFamilyDescriptor(name, Memory.family()));
            }
        }
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        DBOptions options = Memory.database();
        open.add(options);
        database = RocksDB.open(options, directory.toString(), families, handles);
        positions = handles.get(1);
        int next = 2;
        for (Part part : parts) {
            if (part.kept == null) {
                part.family = handles.get(next++);
                byte[] at = database.get(positions, part.store.name().getBytes(StandardCharsets.UTF_8));
                part.position = at == null ? 0 : ByteBuffer.wrap(at).getLong();
            }
        }
        open.addAll(handles);
    }

    private static IllegalStateException failed(RocksDBException error) {
        return new IllegalStateException("RocksDB: " + error.getMessage(), error);
    }

    // --- while records are processed -------------------------------------------------------------------

    byte[] get(int store, byte[] key) {
        Part part = parts.get(store);
        byte[] changed = part.changes.get(key);
        if (changed != null) {
            return changed == DROPPED ? null : changed;
        }
        if (part.changes.containsKey(key)) {
            return null;
        }
        if (part.kept != null) {
            return part.kept.get(key);
        }
        try {
            return database.get(part.family, key);
        } catch (RocksDBException error) {
            throw failed(error);
        }
    }

    /** A value of null deletes the key. */
    void put(int store, byte[] key, byte[] value) {
        parts.get(store).changes.put(key, value);
        changedBytes += 100L + key.length + (value == null ? 0 : value.length);
    }

    /** Deletes a key of which the changelog does not hear: what is expired there, too. */
    void drop(int store, byte[] key) {
        put(store, key, DROPPED);
    }

    /** How much memory changes take that are not committed, about. */
    long changedBytes() {
        return changedBytes;
    }

    /**
     * The entries with keys from one to before another, in order.
     *
     * @param to null for all that follow
     * @param each must not change the store
     */
    void range(int store, byte[] from, byte[] to, BiConsumer<byte[], byte[]> each) {
        Part part = parts.get(store);
        Iterator<Map.Entry<byte[], byte[]>> changes = from(part.changes, from, to);
        Map.Entry<byte[], byte[]> change = next(changes);
        try (Kept kept = part.kept == null ? new OnDisk(part, from, to) : new InMemory(from(part.kept, from, to))) {
            for (; kept.key() != null; kept.next()) {
                int order = -1;
                while (change != null && (order = Arrays.compareUnsigned(change.getKey(), kept.key())) < 0) {
                    tell(change, each);
                    change = next(changes);
                }
                if (change == null || order > 0) {
                    each.accept(kept.key(), kept.value());
                }
            }
        }
        for (; change != null; change = next(changes)) {
            tell(change, each);
        }
    }

    /** Whether a store has nothing. */
    boolean isEmpty(int store) {
        Part part = parts.get(store);
        if (!part.changes.isEmpty()) {
            return false;
        }
        try (Kept kept = part.kept == null
                ? new OnDisk(part, new byte[0], null)
                : new InMemory(from(part.kept, new byte[0], null))) {
            return kept.key() == null;
        }
    }

    private static Iterator<Map.Entry<byte[], byte[]>> from(TreeMap<byte[], byte[]> map, byte[] from, byte[] to) {
        return (to == null ? map.tailMap(from) : map.subMap(from, to)).entrySet().iterator();
    }

    private static <T> T next(Iterator<T> all) {
        return all.hasNext() ? all.next() : null;
    }

    private static void tell(Map.Entry<byte[], byte[]> change, BiConsumer<byte[], byte[]> each) {
        if (change.getValue() != null && change.getValue() != DROPPED) {
            each.accept(change.getKey(), change.getValue());
        }
    }

    /** Entries that are committed, one by one. */
    private interface Kept extends AutoCloseable {
        /** Null at the end. */
        byte[] key();

        byte[] value();

        void next();

        @Override
        void close();
    }

    private static final class InMemory implements Kept {
        private final Iterator<Map.Entry<byte[], byte[]>> entries;
        private Map.Entry<byte[], byte[]> entry;

        InMemory(Iterator<Map.Entry<byte[], byte[]>> entries) {
            this.entries = entries;
            this.entry = State.next(entries);
        }

        @Override
        public byte[] key() {
            return entry == null ? null : entry.getKey();
        }

        @Override
        public byte[] value() {
            return entry.getValue();
        }

        @Override
        public void next() {
            entry = State.next(entries);
        }

        @Override
        public void close() {
            // Nothing is open.
        }
    }

    /** Opening an iterator is expensive, so each store has one from commit to commit. */
    private final class OnDisk implements Kept {
        private final Part part;
        private final byte[] to;
        private final RocksIterator entries;
        private final boolean isShared;
        private byte[] key;

        OnDisk(Part part, byte[] from, byte[] to) {
            this.part = part;
            this.to = to;
            isShared = !part.isInUse;
            if (!isShared) {
                entries = database.newIterator(part.family);
            } else {
                if (part.entries == null) {
                    part.entries = database.newIterator(part.family);
                }
                entries = part.entries;
                part.isInUse = true;
            }
            entries.seek(from);
            read();
        }

        private void read() {
            key = entries.isValid() ? entries.key() : null;
            if (key != null && to != null && Arrays.compareUnsigned(key, to) >= 0) {
                key = null;
            }
        }

        @Override
        public byte[] key() {
            return key;
        }

        @Override
        public byte[] value() {
            return entries.value();
        }

        @Override
        public void next() {
            entries.next();
            read();
        }

        @Override
        public void close() {
            if (isShared) {
                part.isInUse = false;
            } else {
                entries.close();
            }
        }
    }

    private static void release(Part part) {
        if (part.entries != null) {
            part.entries.close();
            part.entries = null;
        }
    }

    // --- commits ---------------------------------------------------------------------------------------

    /** Passes on what has changed in stores that are logged: the store's number, key and value. */
    void changes(Log log) {
        for (int i = 0; i < parts.size(); i++) {
            if (parts.get(i).store.isLogged()) {
                int store = i;
                parts.get(i).changes.forEach((key, value) -> {
                    if (value != DROPPED) {
                        log.add(store, key, value);
                    }
                });
            }
        }
    }

    /** Receives changes. */
    interface Log {
        void add(int store, byte[] key, byte[] value);
    }

    /** The next offset of a store's changelog that is not in it. */
    long position(int store) {
        return parts.get(store).position;
    }

    /** Everything up to these offsets of the changelogs is committed: keep it. */
    void committed(long[] next) {
        changedBytes = 0;
        if (parts.isEmpty()) {
            return;
        }
        if (database == null) {
            for (int i = 0; i < parts.size(); i++) {
                write(parts.get(i), next[i]);
            }
            return;
        }
        try (WriteBatch batch = new WriteBatch()) {
            for (int i = 0; i < parts.size(); i++) {
                Part part = parts.get(i);
                if (part.kept == null) {
                    write(part, batch, Math.max(part.position, next[i]));
                } else {
                    write(part, next[i]);
                }
            }
            if (batch.count() > 0) {
                database.write(writing, batch);
            }
        } catch (RocksDBException error) {
            throw failed(error);
        }
    }

    private static boolean isDeleted(Map.Entry<byte[], byte[]> change) {
        return change.getValue() == null || change.getValue() == DROPPED;
    }

    private static void write(Part part, long next) {
        for (Map.Entry<byte[], byte[]> change : part.changes.entrySet()) {
            if (isDeleted(change)) {
                part.kept.remove(change.getKey());
            } else {
                part.kept.put(change.getKey(), change.getValue());
            }
        }
        part.changes.clear();
        part.position = Math.max(part.position, next);
    }

    private void write(Part part, WriteBatch batch, long next) throws RocksDBException {
        if (!part.changes.isEmpty()) {
            release(part);
        }
        for (Map.Entry<byte[], byte[]> change : part.changes.entrySet()) {
            if (isDeleted(change)) {
                batch.delete(part.family, change.getKey());
            } else {
                batch.put(part.family, change.getKey(), change.getValue());
            }
        }
        part.changes.clear();
        if (next != part.position) {
            byte[] at = ByteBuffer.allocate(Long.BYTES).putLong(next).array();
            batch.put(positions, part.store.name().getBytes(StandardCharsets.UTF_8), at);
        }
        part.position = next;
    }

    /** Forgets what is not committed. */
    void abort() {
        parts.forEach(part -> part.changes.clear());
        changedBytes = 0;
    }

    @Override
    public void close() {
        parts.forEach(State::release);
        for (AutoCloseable each : open) {
            try {
                each.close();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
        if (database != null) {
            database.close();
        }
    }
}
