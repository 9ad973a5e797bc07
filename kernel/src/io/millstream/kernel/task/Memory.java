package io.millstream.kernel.task;

import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.Cache;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.Filter;
import org.rocksdb.LRUCache;
import org.rocksdb.RocksDB;
import org.rocksdb.WriteBufferManager;

/** The memory of all RocksDBs of a JVM: one cache, and one limit for what is not yet written. */
@SuppressWarnings("resource") // what is opened here belongs to the JVM, or to the caller
final class Memory {
    private static final long CACHE = 64L << 20;
    private static final long BUFFERS = 64L << 20;
    private static final long BUFFER = 16L << 20;
    private static final int LOGS = 1;

    private static Cache cache;
    private static WriteBufferManager buffers;
    /** Most keys that are looked up and are not there need no look into a block. */
    private static Filter filter;

    private Memory() {}

    private static synchronized void open() {
        if (cache == null) {
            RocksDB.loadLibrary();
            cache = new LRUCache(CACHE + BUFFERS);
            buffers = new WriteBufferManager(BUFFERS, cache);
            filter = new BloomFilter();
        }
    }

    static DBOptions database() {
        open();
        return new DBOptions()
                .setCreateIfMissing(true)
                .setCreateMissingColumnFamilies(true)
                .setWriteBufferManager(buffers)
                .setKeepLogFileNum(LOGS)
                .setMaxBackgroundJobs(2);
    }

    static ColumnFamilyOptions family() {
        open();
        return new ColumnFamilyOptions()
                .setWriteBufferSize(BUFFER)
                .setTableFormatConfig(new BlockBasedTableConfig().setBlockCache(cache).setFilterPolicy(filter));
    }
}
