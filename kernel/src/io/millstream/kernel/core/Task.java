package io.millstream.kernel.core;

/**
 * The context of a core: one aggregation, in one partition.
 *
 * @param due when slices are not needed any more; null for a core without windows
 * @param closing when windows are to be emitted as closed, or released; null if none are
 * @param remembers whether a window's previous value is kept
 */
public record Task(Parts parts, Table table, Output output, Clock clock, Due due, Due closing, boolean remembers) {}
