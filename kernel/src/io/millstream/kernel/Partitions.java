package io.millstream.kernel;

import org.apache.kafka.common.utils.Utils;

/** Which partition a key lies in, as every Kafka client decides it by default. */
public final class Partitions {
    private Partitions() {}

    /**
     * The partition of a key.
     *
     * @param key its serialized bytes; not null
     * @param partitions how many there are
     * @return from 0 on
     */
    public static int of(byte[] key, int partitions) {
        return Utils.toPositive(Utils.murmur2(key)) % partitions;
    }
}
