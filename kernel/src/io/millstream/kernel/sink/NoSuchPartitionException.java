package io.millstream.kernel.sink;

/** A partitioner chose a partition that its topic does not have. */
final class NoSuchPartitionException extends RuntimeException {
    private static final long serialVersionUID = 1;

    NoSuchPartitionException(int chosen, String topic, int partitions) {
        super("the partitioner chose partition " + chosen + " of topic '" + topic + "', which has "
                + (partitions == 1 ? "one partition, 0" : partitions + " partitions, 0 to " + (partitions - 1)));
    }
}
