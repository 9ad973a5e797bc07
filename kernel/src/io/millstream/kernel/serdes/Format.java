package io.millstream.kernel.serdes;

/** Values as Spark keeps them in rows, and their bytes. Used by several threads at a time. */
interface Format {
    /**
     * The value that bytes are.
     *
     * @throws UnreadableException they are none
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
