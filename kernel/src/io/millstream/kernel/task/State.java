package io.millstream.kernel.task;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import java.util.function.LongSupplier;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.DBOptions;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.Slice;
import org.rocksdb.Status;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * What a task knows: for each of its stores an ordered map of bytes, in one RocksDB.
 *
 * <p>Changes stay in memory until they are committed: logged by the task's transaction, and only then passed to
 * RocksDB, in one step with the position in the changelogs up to which it is complete. So a crash leaves nothing there
 * that is not committed.
 *
 * <p>RocksDB keeps its own log, without syncing it. The changelogs would do instead, but measured it saves little: of
 * a commit's write with one change 2 of 4 us, with 10,000 changes 6 %, of a restore nothing. With the log, a process
 * that was killed restores only what came after its last commit, and to close takes 2 ms, not 60 to 150. After a crash
 * of the machine the end of the log is missing; what it has is consistent over all stores, and the changelogs have
 * the rest.
 */
@SuppressWarnings("resource") // all are closed with it
final class State implements AutoCloseable {
    private static final byte[] POSITIONS = "positions".getBytes(StandardCharsets.UTF_8);
    /** What a change takes beside its bytes, about. */
    private static final long OVERHEAD = 100;

    private static final long UNHEARD = Long.MIN_VALUE;

    private static final class Part {
        final TaskPlan.Store store;
        ColumnFamilyHandle family;
        /** What is kept if it is not on disk. */
        TreeMap<byte[], byte[]> kept;
        /** What has changed since the last commit; null for a deleted key. */
        TreeMap<byte[], byte[]> changes = newMap();
        /** Of the deleted keys the times; {@link #UNHEARD}: the changelog does not hear of it. */
        TreeMap<byte[], Long> deleted = new TreeMap<>(Arrays::compareUnsigned);
        /** What is logged in any case: all puts if entries are not; those of keys that have expired since. */
        List<Put> puts = new ArrayList<>();
        /** The next offset of its changelog that is not in it. */
        long position;
        /** An iterator over what was on disk at the last commit; null if it is not open. */
        RocksIterator entries;
        /** Whether it is in use. */
        boolean isInUse;
        /** When it was complete up to there, or when it was begun to be restored, in ms. */
        long time;
        /** Those that are open, and are to be told of changes. */
        final Set<Cursor> cursors = new HashSet<>();
        /** Those that are open and read this `kept`. */
        final Set<Cursor> readers = new HashSet<>();

        Part(TaskPlan.Store store) {
            this.store = store;
            this.kept = store.isInMemory() ? newMap() : null;
        }

        /** A new map for the next changes: open cursors go on with the old one. */
        void forget() {
            if (!changes.isEmpty() || !cursors.isEmpty()) {
                changes = newMap();
                cursors.clear();
            }
            deleted.clear();
            puts.clear();
        }
    }

    private record Put(byte[] key, byte[] value, long time) {}

    private final List<Part> parts = new ArrayList<>();
    private final TaskDirectory directory;
    private final List<AutoCloseable> open = new ArrayList<>();
    private final Set<Cursor> cursors = new HashSet<>();
    private RocksDB database;
    private ColumnFamilyHandle positions;
    private WriteOptions writing;
    private long changedBytes;
    /** How many tables of operators keep entries of it at hand. */
    private int tables;
    /** The time of the record at hand. */
    long timestamp;

    /**
     * Opens the stores.
     *
     * @param directory whose they are, or null if all stores are in memory
     */
    State(List<TaskPlan.Store> stores, TaskDirectory directory) {
        this.directory = directory;
        stores.forEach(store -> parts.add(new Part(store)));
        RocksDB.loadLibrary(); // also if all stores are in memory: a batch of writes is RocksDB's
        if (directory == null) {
            return;
        }
        try {
            openDatabase();
        } catch (RocksDBException error) {
            closeDatabase();
            if (!isDamage(error)) {
                throw failed(error);
            }
            directory.wipe("RocksDB cannot open it: " + error.getMessage());
            openAgain();
        }
    }

    private void openAgain() {
        try {
            openDatabase();
        } catch (RocksDBException error) {
            closeDatabase();
            throw failed(error);
        }
    }

    /** Throws away what is on disk, and begins anew. */
    void wipe(String why) {
        parts.forEach(part -> {
            part.position = 0;
            part.time = 0;
            part.kept = part.kept == null ? null : newMap();
        });
        if (directory != null) {
            closeDatabase();
            directory.wipe(why);
            openAgain();
        }
    }

    /** Null if all stores are in memory. */
    TaskDirectory directory() {
        return directory;
    }

    private static TreeMap<byte[], byte[]> newMap() {
        return new TreeMap<>(Arrays::compareUnsigned);
    }

    @SuppressWarnings("resource") // it is all in `open`
    private void openDatabase() throws RocksDBException {
        writing = new WriteOptions();
        open.add(writing);
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        families.add(new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY, Memory.family()));
        families.add(new ColumnFamilyDescriptor(POSITIONS, Memory.family()));
        for (Part part : parts) {
            if (part.kept == null) {
                families.add(new ColumnFamilyDescriptor(name(part), Memory.family()));
            }
        }
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        DBOptions options = Memory.database();
        open.add(options);
        try {
            Files.createDirectories(directory.database());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        database = RocksDB.open(options, directory.database().toString(), families, handles);
        open.addAll(0, handles);
        positions = handles.get(1);
        int next = 2;
        for (Part part : parts) {
            if (part.kept == null) {
                part.family = handles.get(next++);
                byte[] at = database.get(positions, name(part));
                part.position = at == null ? 0 : ByteBuffer.wrap(at).getLong();
                part.time = at == null ? 0 : ByteBuffer.wrap(at).getLong(Long.BYTES);
            }
        }
    }

    private static byte[] name(Part part) {
        return part.store.name().getBytes(StandardCharsets.UTF_8);
    }

    private static boolean isDamage(RocksDBException error) {
        Status.Code code = error.getStatus() == null ? null : error.getStatus().getCode();
        return code == Status.Code.Corruption
                || code == Status.Code.InvalidArgument // other stores than it says
                || code == Status.Code.IOError && error.getMessage().contains("No such file")
                || code == Status.Code.NotFound
                || code == Status.Code.NotSupported;
    }

    private IllegalStateException failed(RocksDBException error) {
        String where = directory == null ? "" : " in " + directory.database();
        if (isDamage(error)) {
            directory.condemn();
        }
        return new IllegalStateException("RocksDB" + where + ": " + error.getMessage(), error);
    }

    // --- while records are processed -------------------------------------------------------------------

    TaskPlan.Store store(int number) {
        return parts.get(number).store;
    }

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

    /** Deletes all entries of a store at once, on disk as well. It is in no changelog. */
    void clear(int store) {
        Part part = parts.get(store);
        release(part);
        part.forget();
        if (part.kept != null) {
            part.kept = newMap(); // open cursors go on with the old one
            part.readers.clear();
            return;
        }
        try (RocksIterator all = database.newIterator(part.family)) {
            all.seekToFirst();
            byte[] first = all.isValid() ? all.key() : null;
            all.seekToLast();
            if (first != null && all.isValid()) {
                byte[] last = all.key();
                database.deleteRange(part.family, writing, first, last);
                database.delete(part.family, writing, last);
            }
            all.status();
        } catch (RocksDBException error) {
            throw failed(error);
        }
    }

    /** A value of null deletes the key, at the time of the record at hand. */
    void put(int store, byte[] key, byte[] value) {
        put(store, key, value, timestamp);
    }

    /**
     * Changes a key.
     *
     * @param value null deletes it
     * @param deleted the time of a deletion
     */
    void put(int store, byte[] key, byte[] value, long deleted) {
        Part part = parts.get(store);
        if (value == null) {
            part.deleted.put(key, deleted);
        } else if (!part.deleted.isEmpty()) {
            part.deleted.remove(key);
        }
        if (!part.cursors.isEmpty()) {
            byte[] from = part.changes.get(key);
            boolean wasChanged = from != null || part.changes.containsKey(key);
            part.cursors.forEach(each -> each.changing(key, from, wasChanged));
        }
        int size = part.changes.size();
        byte[] before = part.changes.put(key, value);
        changedBytes += value == null ? 0 : value.length;
        if (part.changes.size() > size) {
            changedBytes += OVERHEAD + key.length;
        } else if (before != null) {
            changedBytes -= before.length;
        }
    }

    /** Deletes a key of which the changelog does not hear: what is expired there, too. It hears what it was before. */
    void drop(int store, byte[] key) {
        Part part = parts.get(store);
        byte[] changed = part.changes.get(key);
        if (changed != null && part.store.isLogged()) {
            part.puts.add(new Put(key, changed, 0));
        }
        put(store, key, null, UNHEARD);
    }

    /**
     * Has a record written to the changelog of a store that has a layout, or whose versions are kept: each put is
     * logged, as in Kafka Streams, and its entries are not.
     *
     * @param value as an entry; null for a deletion
     * @param at the time of a deletion
     */
    void log(int store, byte[] key, byte[] value, long at) {
        Part part = parts.get(store);
        if (!part.store.isLogged()) {
            return;
        }
        part.puts.add(new Put(key, value, at));
        changedBytes += OVERHEAD + key.length + (value == null ? 0 : value.length);
    }

    /** How many bytes of entries one more table may have at hand. */
    LongSupplier share() {
        tables++;
        return () -> Memory.entries(tables);
    }

    /** How much memory changes take that are not committed, about. */
    long changedBytes() {
        return changedBytes;
    }

    /**
     * The entries with keys from one to before another, in order: for the many short ranges of windows.
     *
     * @param to null for all that follow
     * @param each must not change the store
     */
    void range(int store, byte[] from, byte[] to, BiConsumer<byte[], byte[]> each) {
        Part part = parts.get(store);
        if (part.kept != null || part.isInUse) {
            try (Cursor entries = range(store, from, to, false)) {
                while (entries.next()) {
                    each.accept(entries.key(), entries.value());
                }
            }
            return;
        }
        // Opening an iterator is expensive, so each store has one from commit to commit.
        if (part.entries == null) {
            part.entries = database.newIterator(part.family);
        }
        part.isInUse = true;
        try {
            merge(part.entries, within(part.changes, from, to, false), from, to, each);
            part.entries.status(); // a damaged block reads as the end
        } catch (RocksDBException error) {
            throw failed(error);
        } finally {
            part.isInUse = false;
        }
    }

    private static void merge(
            RocksIterator kept,
            NavigableMap<byte[], byte[]> changes,
            byte[] from,
            byte[] to,
            BiConsumer<byte[], byte[]> each) {
        Iterator<Map.Entry<byte[], byte[]>> changing = changes.entrySet().iterator();
        Map.Entry<byte[], byte[]> change = changing.hasNext() ? changing.next() : null;
        kept.seek(from);
        byte[] key = key(kept, to);
        while (key != null || change != null) {
            int order = key == null ? 1 : change == null ? -1 : Arrays.compareUnsigned(key, change.getKey());
            if (order < 0) {
                each.accept(key, kept.value());
            } else if (change != null && change.getValue() != null) {
                each.accept(change.getKey(), change.getValue());
            }
            if (order <= 0) {
                kept.next();
                key = key(kept, to);
            }
            if (order >= 0) {
                change = changing.hasNext() ? changing.next() : null;
            }
        }
    }

    private static byte[] key(RocksIterator entries, byte[] to) {
        byte[] key = entries.isValid() ? entries.key() : null;
        return key != null && to != null && Arrays.compareUnsigned(key, to) >= 0 ? null : key;
    }

    private static void release(Part part) {
        if (part.entries != null) {
            part.entries.close();
            part.entries = null;
        }
    }

    /**
     * The entries with keys from one to before another.
     *
     * @param from null: from the first one
     * @param to null: to the last one
     * @param isReverse whether the last one comes first
     */
    Cursor range(int store, byte[] from, byte[] to, boolean isReverse) {
        Part part = parts.get(store);
        boolean isEmpty = from != null && to != null && Arrays.compareUnsigned(from, to) >= 0;
        Cursor.Kept kept;
        if (isEmpty) {
            kept = new InMemory(new TreeMap<byte[], byte[]>().entrySet().iterator());
        } else if (part.kept != null) {
            kept = new InMemory(within(part.kept, from, to, isReverse).entrySet().iterator());
        } else {
            kept = new OnDisk(part.family, from, to, isReverse);
        }
        NavigableMap<byte[], byte[]> changes = isEmpty ? newMap() : within(part.changes, from, to, isReverse);
        Cursor cursor = new Cursor(kept, changes, from, to, closed -> {
            part.cursors.remove(closed);
            part.readers.remove(closed);
            cursors.remove(closed);
        });
        part.cursors.add(cursor);
        part.readers.add(cursor);
        cursors.add(cursor);
        return cursor;
    }

    /** The first bytes behind all that begin with a prefix; null if there are none. */
    static byte[] after(byte[] prefix) {
        for (int last = prefix.length - 1; last >= 0; last--) {
            if (prefix[last] != (byte) 0xFF) {
                byte[] after = Arrays.copyOf(prefix, last + 1);
                after[last]++;
                return after;
            }
        }
        return null;
    }

    /** How many entries there are, about. */
    long count(int store) {
        Part part = parts.get(store);
        long count = part.changes.values().stream()
                .mapToLong(value -> value == null ? -1 : 1)
                .sum();
        try {
            count += part.kept != null
                    ? part.kept.size()
                    : database.getLongProperty(part.family, "rocksdb.estimate-num-keys");
        } catch (RocksDBException error) {
            throw failed(error);
        }
        return Math.max(0, count);
    }

    boolean isEmpty(int store) {
        try (Cursor entries = range(store, null, null, false)) {
            return !entries.next();
        }
    }

    private static NavigableMap<byte[], byte[]> within(
            TreeMap<byte[], byte[]> all, byte[] from, byte[] to, boolean isReverse) {
        NavigableMap<byte[], byte[]> found = all;
        found = from == null ? found : found.tailMap(from, true);
        found = to == null ? found : found.headMap(to, false);
        return isReverse ? found.descendingMap() : found;
    }

    private static final class InMemory implements Cursor.Kept {
        private final Iterator<Map.Entry<byte[], byte[]>> entries;
        private Map.Entry<byte[], byte[]> entry;

        InMemory(Iterator<Map.Entry<byte[], byte[]>> entries) {
            this.entries = entries;
        }

        @Override
        public boolean next() {
            entry = entries.hasNext() ? entries.next() : null;
            return entry != null;
        }

        @Override
        public byte[] key() {
            return entry.getKey();
        }

        @Override
        public byte[] value() {
            return entry.getValue();
        }

        @Override
        public void close() {
            entry = null;
        }
    }

    private final class OnDisk implements Cursor.Kept {
        private final Slice lower;
        private final Slice upper;
        private final ReadOptions options;
        private final RocksIterator entries;
        private final boolean isReverse;
        private boolean isStarted;
        private byte[] key;

        @SuppressWarnings("resource") // each setter returns the same object
        OnDisk(ColumnFamilyHandle family, byte[] from, byte[] to, boolean isReverse) {
            this.isReverse = isReverse;
            lower = from == null || from.length == 0 ? null : new Slice(from);
            upper = to == null ? null : new Slice(to);
            options = new ReadOptions();
            if (lower != null) {
                options.setIterateLowerBound(lower);
            }
            if (upper != null) {
                options.setIterateUpperBound(upper);
            }
            entries = database.newIterator(family, options);
        }

        @Override
        public boolean next() {
            if (isStarted && isReverse) {
                entries.prev();
            } else if (isStarted) {
                entries.next();
            } else if (isReverse) {
                entries.seekToLast();
            } else {
                entries.seekToFirst();
            }
            isStarted = true;
            if (entries.isValid()) {
                key = entries.key();
                return true;
            }
            try {
                entries.status();
            } catch (RocksDBException error) {
                throw failed(error);
            }
            return false;
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
        public void close() {
            entries.close();
            options.close();
            if (upper != null) {
                upper.close();
            }
            if (lower != null) {
                lower.close();
            }
        }
    }

    // --- commits ---------------------------------------------------------------------------------------

    /** Passes on what has changed in stores that are logged. */
    void changes(Log log) {
        for (int i = 0; i < parts.size(); i++) {
            Part part = parts.get(i);
            int store = i;
            part.puts.forEach(put -> log.add(store, put.key, put.value, put.time));
            boolean isOfEntries = !part.store.isVersioned() && part.store.layout().isEmpty();
            if (part.store.isLogged() && isOfEntries) {
                part.changes.forEach((key, value) -> {
                    long deleted = value == null ? part.deleted.get(key) : 0;
                    if (deleted != UNHEARD) {
                        log.add(store, key, value, deleted);
                    }
                });
            }
        }
    }

    /** Receives changes: the store's number, the key, and the value; or null, and the time of the deletion. */
    interface Log {
        void add(int store, byte[] key, byte[] value, long at);
    }

    /** The next offset of a store's changelog that is not in it. */
    long position(int store) {
        return parts.get(store).position;
    }

    /** How long ago what is on disk of a store was brought up to its position, in ms. */
    long age(int store) {
        return System.currentTimeMillis() - parts.get(store).time;
    }

    /** A store has all that is committed in its changelog now. */
    void isCurrent(int store) {
        parts.get(store).time = System.currentTimeMillis();
    }

    /** Everything up to these offsets of the changelogs is committed: keep it. */
    void committed(long[] next) {
        try (WriteBatch batch = new WriteBatch()) {
            for (int i = 0; i < parts.size(); i++) {
                Part part = parts.get(i);
                if (!part.changes.isEmpty()) {
                    release(part);
                }
                for (Map.Entry<byte[], byte[]> change : part.changes.entrySet()) {
                    keep(part, batch, change.getKey(), change.getValue());
                }
                if (next[i] > part.position) {
                    part.time = System.currentTimeMillis();
                }
                moveTo(part, batch, Math.max(part.position, next[i]));
            }
            write(batch);
        } catch (RocksDBException error) {
            throw failed(error);
        }
        abort();
    }

    /** Keeps the changes of stores that are derived before they are committed: what they follow from is. */
    void spill() {
        try (WriteBatch batch = new WriteBatch()) {
            for (Part part : parts) {
                if (part.store.isDerived()) {
                    release(part);
                    for (Map.Entry<byte[], byte[]> change : part.changes.entrySet()) {
                        keep(part, batch, change.getKey(), change.getValue());
                        byte[] value = change.getValue();
                        changedBytes -= OVERHEAD + change.getKey().length + (value == null ? 0 : value.length);
                    }
                    part.forget();
                }
            }
            write(batch);
        } catch (RocksDBException error) {
            throw failed(error);
        }
    }

    /** Keeps committed entries of a store's changelog at once, and that it is complete up to an offset. */
    void restored(int store, Iterable<Map.Entry<byte[], byte[]>> entries, long next) {
        Part part = parts.get(store);
        release(part);
        try (WriteBatch batch = new WriteBatch()) {
            for (Map.Entry<byte[], byte[]> entry : entries) {
                keep(part, batch, entry.getKey(), entry.getValue());
            }
            if (part.time == 0) { // it stays while it is restored: a deletion that is due then may go soon after
                part.time = System.currentTimeMillis();
            }
            moveTo(part, batch, next);
            write(batch);
        } catch (RocksDBException error) {
            throw failed(error);
        }
    }

    /** Likewise what was put since, where entries lie differently than in the changelog. */
    void restored(int store, long next) {
        Part part = parts.get(store);
        Iterable<Map.Entry<byte[], byte[]>> entries = List.copyOf(part.changes.entrySet());
        part.forget();
        changedBytes = 0;
        restored(store, entries, next);
    }

    private void write(WriteBatch batch) throws RocksDBException {
        if (batch.count() > 0) {
            database.write(writing, batch);
        }
    }

    private static void keep(Part part, WriteBatch batch, byte[] key, byte[] value) throws RocksDBException {
        if (part.kept == null) {
            if (value == null) {
                batch.delete(part.family, key);
            } else {
                batch.put(part.family, key, value);
            }
            return;
        }
        if (!part.readers.isEmpty()) { // they go on with the old one
            part.kept = new TreeMap<>(part.kept);
            part.readers.clear();
        }
        if (value == null) {
            part.kept.remove(key);
        } else {
            part.kept.put(key, value);
        }
    }

    private void moveTo(Part part, WriteBatch batch, long next) throws RocksDBException {
        if (next != part.position && part.kept == null) {
            byte[] at = ByteBuffer.allocate(2 * Long.BYTES).putLong(next).putLong(part.time).array();
            batch.put(positions, name(part), at);
        }
        part.position = next;
    }

    /** Forgets what is not committed. */
    void abort() {
        parts.forEach(Part::forget);
        changedBytes = 0;
    }

    @Override
    public void close() {
        List.copyOf(cursors).forEach(Cursor::close);
        closeDatabase();
        if (directory != null) {
            directory.close();
        }
    }

    private void closeDatabase() {
        parts.forEach(State::release);
        for (AutoCloseable each : open) {
            if (each instanceof ColumnFamilyHandle handle) {
                handle.close();
            }
        }
        if (database != null) {
            database.close();
            database = null;
        }
        for (AutoCloseable each : open) {
            if (each instanceof DBOptions options) {
                options.close();
            } else if (each instanceof WriteOptions options) {
                options.close();
            }
        }
        open.clear();
    }
}
