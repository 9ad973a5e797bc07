package io.millstream.kernel.serdes;

/** Converts the values in Spark's rows to bytes, and back. Used by several threads at a time. */
interface Format {
    /**
     * The value of some bytes.
     *
     * @throws UnreadableException they are not a value
     * @throws RegistryError the registry cannot be queried
     */
    Object read(byte[] data);

    /**
     * The bytes of a value, which is not null.
     *
     * @throws UnwritableException it does not fit the schema
     */
    byte[] write(Object value);
}
