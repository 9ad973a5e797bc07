package io.millstream.kernel.core;

/**
 * What a core works with: one aggregation, in one bucket of keys, for a micro-batch.
 *
 * @param due which slices are not needed any more; null for a core of no windows
 * @param closing which windows are to be told when they close, or are held back; null if none is
 * @param remembers what a window had before it changed is noted
 */
public record Task(Parts parts, Table table, Told told, Clock clock, Due due, Due closing, boolean remembers) {}
