package io.millstream.kernel.serdes;

import java.nio.ByteBuffer;

/** The start of a value in Confluent's wire format: a 0, and the id of the schema with which it was written. */
final class Header {
    static final int SIZE = 5;

    private Header() {}

    /**
     * The schema's id.
     *
     * @throws UnreadableException the bytes have no such header
     */
    static int id(byte[] data) {
        if (data.length < SIZE || data[0] != 0) {
            throw new UnreadableException("a 0 and the id of a schema before the value, as Confluent's serializers"
                    + " write them");
        }
        int id = ByteBuffer.wrap(data, 1, 4).getInt();
        if (id < 0) {
            throw new UnreadableException("a schema id that the registry knows, and none is " + id);
        }
        return id;
    }

    static byte[] of(int id) {
        return ByteBuffer.allocate(SIZE).putInt(1, id).array();
    }
}
