package io.millstream.kernel.core;

import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/** What has to be checked when stream time reaches a certain time. Entries are kept in pages, by spans of time. */
public abstract class Due {
    static final Comparator<Entry> ORDER =
            Comparator.comparingLong(Entry::time).thenComparing(Entry::key, Arrays::compareUnsigned);

    /**
     * A slice or a window of a key.
     *
     * @param time when it is due
     */
    public record Entry(long time, byte[] key, long number) {}

    /** Where pages are kept. */
    public interface Pages {
        List<Entry> read(long span, int page);

        void write(long span, int page, List<Entry> entries);

        void delete(long span, int page);
    }

    abstract void add(long time, byte[] key, long number);

    /** Removes and returns what is due at this time, in the order of times and keys. */
    abstract List<Entry> take(long time);

    /** Removes and returns the first due entry. There has to be one. */
    abstract Entry first();

    /** Writes what has to be kept. */
    public abstract void flush();
}
