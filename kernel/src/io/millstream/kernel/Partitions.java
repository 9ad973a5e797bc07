package io.millstream.kernel;

import org.apache.kafka.common.utils.Utils;
import org.apache.spark.sql.api.java.UDF2;

/**
 * Which partition a key lies in, as every Kafka client decides it by default. As a function of Spark's it takes a
 * binary column and a number, and is null where the key is.
 */
public final class Partitions implements UDF2<byte[], Integer, Integer> {
    private static final long serialVersionUID = 1;

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

    @Override
    public Integer call(byte[] key, Integer partitions) {
        return key == null ? null : Integer.valueOf(of(key, partitions));
    }
}
