package io.millstream.kernel.task;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.Cache;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.LRUCache;
import org.rocksdb.RocksDB;
import org.rocksdb.WriteBufferManager;

/**
 * The memory of all tasks of a JVM.
 *
 * <p>Outside the heap, all RocksDBs share one budget: half of what the container (or the machine) has beside the heap
 * and {@value #OTHERS} bytes for the rest of the JVM and for Python, but at least {@value #LEAST} and at most
 * {@value #MOST} bytes. The system property {@value #PROPERTY} replaces it: a number of bytes, or of k, m, g. It is
 * one cache of blocks, indexes and filters; of it, at most a third is for what is not yet written to files.
 *
 * <p>On the heap, the changes that are not committed share an eighth of it: a task that has more than its share,
 * or than {@value #MOST_CHANGES} bytes, commits before the time. The entries that tasks have at hand share a quarter,
 * but each table may have {@value #LEAST_ENTRIES} bytes: others are read from the state when they are needed.
 */
final class Memory {
    static final String PROPERTY = "millstream.kernel.memory";
    /** What the rest takes: code and classes of the JVM, its threads, a Python client. */
    static final long OTHERS = 400L << 20;

    static final long LEAST = 32L << 20;
    static final long MOST = 512L << 20;

    private static final int BUFFERS_SHARE = 3;
    private static final long CHANGES = Runtime.getRuntime().maxMemory() / 8;
    private static final long MOST_CHANGES = 64L << 20;
    private static final long ENTRIES = Runtime.getRuntime().maxMemory() / 4;
    private static final long LEAST_ENTRIES = 2L << 20;
    private static final long BUFFER = 16L << 20;
    /** It is read when a database is opened that was not closed. */
    private static final long MOST_LOG = 32L << 20;

    /** A buffer takes its memory in pieces of this size: there may be many stores, with little in each. */
    private static final long PIECE = 64L << 10;

    private static final double BITS_PER_KEY = 10;

    private static final AtomicInteger TASKS = new AtomicInteger();
    private static Cache cache;
    private static WriteBufferManager buffers;
    private static ColumnFamilyOptions family;

    private Memory() {}

    /** How much RocksDB may take. Pure. */
    static long budget(long container, long heap) {
        return Math.max(LEAST, Math.min(MOST, (container - heap - OTHERS) / 2));
    }

    private static long budget() {
        String set = System.getProperty(PROPERTY);
        if (set != null) {
            return bytes(set);
        }
        // The limit of the cgroup, version 1 or 2, if there is one; else the machine's memory.
        long container = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getTotalMemorySize();
        return budget(container, Runtime.getRuntime().maxMemory());
    }

    /** Such as 64m. */
    static long bytes(String text) {
        String lower = text.trim().toLowerCase(Locale.ROOT);
        int unit = "kmg".indexOf(lower.charAt(lower.length() - 1));
        long number = Long.parseLong(unit < 0 ? lower : lower.substring(0, lower.length() - 1));
        return number << 10 * (unit + 1);
    }

    @SuppressWarnings("resource") // it stays open
    private static synchronized void open() {
        if (cache == null) {
            RocksDB.loadLibrary();
            long budget = budget();
            cache = new LRUCache(budget);
            buffers = new WriteBufferManager(budget / BUFFERS_SHARE, cache);
            family = new ColumnFamilyOptions()
                    .setWriteBufferSize(Math.min(BUFFER, budget / BUFFERS_SHARE / 2))
                    .setArenaBlockSize(PIECE)
                    .setTableFormatConfig(new BlockBasedTableConfig()
                            .setBlockCache(cache)
                            .setFilterPolicy(new BloomFilter(BITS_PER_KEY))
                            .setCacheIndexAndFilterBlocks(true)
                            .setCacheIndexAndFilterBlocksWithHighPriority(true)
                            .setPinL0FilterAndIndexBlocksInCache(true));
        }
    }

    /** For one database, which is closed with it. */
    @SuppressWarnings("resource") // each call returns the same object
    static DBOptions database() {
        open();
        return new DBOptions()
                .setCreateIfMissing(true)
                .setCreateMissingColumnFamilies(true)
                .setWriteBufferManager(buffers)
                .setMaxTotalWalSize(MOST_LOG)
                .setKeepLogFileNum(1)
                .setStatsDumpPeriodSec(0)
                .setStatsPersistPeriodSec(0)
                .setMaxBackgroundJobs(2);
    }

    /** For the stores of all databases; it is not closed. */
    static ColumnFamilyOptions family() {
        open();
        return family;
    }

    static void taskOpened() {
        TASKS.incrementAndGet();
    }

    static void taskClosed() {
        TASKS.decrementAndGet();
    }

    /** How many bytes of entries each of so many tables of a task may have at hand. */
    static long entries(int tables) {
        return Math.max(LEAST_ENTRIES, ENTRIES / Math.max(1, TASKS.get()) / tables);
    }

    /** How much a task may have changed before it has to commit. */
    static long changes() {
        return Math.min(MOST_CHANGES, CHANGES / Math.max(1, TASKS.get()));
    }
}
