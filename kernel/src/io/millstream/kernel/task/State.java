package io.millstream.kernel.task;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
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
import org.rocksdb.Slice;
import org.rocksdb.ReadOptions;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * What a task knows: for each of its stores an ordered map of bytes, in one RocksDB.
 *
 * <p>Changes stay in memory until they are committed: logged by the task's transaction, and only then written to disk,
 * in one step with the position in the changelogs up to which the disk is complete. So a crash leaves nothing there
 * that is not committed.
 */
final class State implements AutoCloseable {
    private static final byte[] POSITIONS = "positions".getBytes(StandardCharsets.UTF_8);

    private static final class Part {
        final TaskPlan.Store store;
        ColumnFamilyHandle family;
        /** What is kept if it is not on disk. */
        final TreeMap<byte[], byte[]> kept;
        /** What has changed since the last commit; null for a deleted key. */
        TreeMap<byte[], byte[]> changes = new TreeMap<>(Arrays::compareUnsigned);
        /** The next offset of its changelog that is not in it. */
        long position;

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
        if (changed != null || part.changes.containsKey(key)) {
            return changed;
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

    /** How much memory changes take that are not committed, about. */
    long changedBytes() {
        return changedBytes;
    }

    /** The entries with keys from one to before another, in order. */
    void range(int store, byte[] from, byte[] to, BiConsumer<byte[], byte[]> each) {
        Part part = parts.get(store);
        TreeMap<byte[], byte[]> found = new TreeMap<>(Arrays::compareUnsigned);
        if (part.kept != null) {
            found.putAll(part.kept.subMap(from, to));
        } else {
            try (Slice end = new Slice(to);
                    ReadOptions until = new ReadOptions().setIterateUpperBound(end);
                    RocksIterator entries = database.newIterator(part.family, until)) {
                for (entries.seek(from); entries.isValid(); entries.next()) {
                    found.put(entries.key(), entries.value());
                }
            }
        }
        for (Map.Entry<byte[], byte[]> change : part.changes.subMap(from, to).entrySet()) {
            if (change.getValue() == null) {
                found.remove(change.getKey());
            } else {
                found.put(change.getKey(), change.getValue());
            }
        }
        found.forEach(each);
    }

    // --- commits ---------------------------------------------------------------------------------------

    /** Passes on what has changed in stores that are logged: the store's number, key and value. */
    void changes(Log log) {
        for (int i = 0; i < parts.size(); i++) {
            if (parts.get(i).store.isLogged()) {
                int store = i;
                parts.get(i).changes.forEach((key, value) -> log.add(store, key, value));
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
        if (database == null) {
            for (int i = 0; i < parts.size(); i++) {
                keep(parts.get(i));
                parts.get(i).position = Math.max(parts.get(i).position, next[i]);
            }
            return;
        }
        try (WriteBatch batch = new WriteBatch()) {
            for (int i = 0; i < parts.size(); i++) {
                Part part = parts.get(i);
                write(part, batch, Math.max(part.position, next[i]));
            }
            if (batch.count() > 0) {
                database.write(writing, batch);
            }
        } catch (RocksDBException error) {
            throw failed(error);
        }
    }

    private static void keep(Part part) {
        part.changes.forEach((key, value) -> {
            if (value == null) {
                part.kept.remove(key);
            } else {
                part.kept.put(key, value);
            }
        });
        part.changes.clear();
    }

    private void write(Part part, WriteBatch batch, long next) throws RocksDBException {
        if (part.kept != null) {
            keep(part);
        }
        for (Map.Entry<byte[], byte[]> change : part.changes.entrySet()) {
            if (change.getValue() == null) {
                batch.delete(part.family, change.getKey());
            } else {
                batch.put(part.family, change.getKey(), change.getValue());
            }
        }
        part.changes = part.changes.isEmpty() ? part.changes : new TreeMap<>(Arrays::compareUnsigned);
        if (next != part.position && part.kept == null) {
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
