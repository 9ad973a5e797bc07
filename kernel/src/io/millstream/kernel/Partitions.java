package io.millstream.kernel;

import org.apache.kafka.common.utils.Utils;
import org.apache.spark.sql.api.java.UDF2;

/**
 * The partition of a key, as Kafka's clients choose it by default. As a Spark function, it takes a binary column and a
 * number, and returns null for a null key.
 */
public final class Partitions implements UDF2<byte[], Integer, Integer> {
    private static final long serialVersionUID = 1;

    /**
     * The partition of a key.
     *
     * @param key its serialized bytes; not null
     * @param partitions their number
     * @return a number from 0
     */
    public static int of(byte[] key, int partitions) {
        return Utils.toPositive(Utils.murmur2(key)) % partitions;
    }

    @Override
    public Integer call(byte[] key, Integer partitions) {
        return key == null ? null : Integer.valueOf(of(key, partitions));
    }
}
