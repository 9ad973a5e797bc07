package io.millstream.kernel.serdes;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.Decoder;
import org.apache.avro.util.Utf8;

/**
 * The bytes of one record. Avro's own decoder allocates as much memory as a record claims to need, before it checks the
 * claim. This one checks first, so that meaningless bytes do not take all memory and end the process.
 */
final class AvroRecord extends Decoder {
    /** How many more elements than bytes a record may have, because some, such as nulls, take no bytes. */
    private static final int MOST_EMPTY = 1 << 20;

    private final BinaryDecoder bytes;
    private final InputStream rest;
    private final int size;
    private long elements;

    AvroRecord(BinaryDecoder bytes) throws IOException {
        this.bytes = bytes;
        rest = bytes.inputStream();
        size = rest.available();
    }

    private int length() throws IOException {
        long claimed = bytes.readLong();
        int left = rest.available();
        if (claimed < 0 || claimed > left) {
            throw new EOFException("a text or bytes of " + claimed + " bytes, but only " + left + " follow");
        }
        return (int) claimed;
    }

    private long elements(long claimed) throws IOException {
        int left = rest.available();
        elements += claimed;
        if (claimed < 0 || claimed > left + MOST_EMPTY || elements > size + MOST_EMPTY) {
            throw new EOFException(elements + " elements in a record of " + size + " bytes");
        }
        return claimed;
    }

    @Override
    public Utf8 readString(Utf8 old) throws IOException {
        byte[] text = new byte[length()];
        bytes.readFixed(text, 0, text.length);
        return new Utf8(text);
    }

    @Override
    public String readString() throws IOException {
        return readString(null).toString();
    }

    @Override
    public ByteBuffer readBytes(ByteBuffer old) throws IOException {
        byte[] data = new byte[length()];
        bytes.readFixed(data, 0, data.length);
        return ByteBuffer.wrap(data);
    }

    @Override
    public long readArrayStart() throws IOException {
        long count = bytes.readLong();
        if (count < 0) { // the size of the block follows
            bytes.readLong();
            count = -count;
        }
        return elements(count);
    }

    @Override
    public long arrayNext() throws IOException {
        return readArrayStart();
    }

    @Override
    public long readMapStart() throws IOException {
        return readArrayStart();
    }

    @Override
    public long mapNext() throws IOException {
        return readArrayStart();
    }

    @Override
    public void skipString() throws IOException {
        bytes.skipFixed(length());
    }

    @Override
    public void skipBytes() throws IOException {
        bytes.skipFixed(length());
    }

    @Override
    public long skipArray() throws IOException {
        long count = bytes.readLong();
        while (count < 0) { // the block says how long it is; Avro's decoder would also go backwards
            bytes.skipFixed(length());
            count = bytes.readLong();
        }
        return elements(count);
    }

    @Override
    public long skipMap() throws IOException {
        return skipArray();
    }

    /** Avro's decoder takes any byte, and Python's half of the serde has to take the same. */
    @Override
    public boolean readBoolean() throws IOException {
        byte[] one = new byte[1];
        bytes.readFixed(one, 0, 1);
        if (one[0] != 0 && one[0] != 1) {
            throw new UnreadableException("Avro whose booleans are 0 or 1");
        }
        return one[0] == 1;
    }

    // --- unchanged --------------------------------------------------------------------------------------------

    @Override
    public void readNull() throws IOException {
        bytes.readNull();
    }

    @Override
    public int readInt() throws IOException {
        return bytes.readInt();
    }

    @Override
    public long readLong() throws IOException {
        return bytes.readLong();
    }

    @Override
    public float readFloat() throws IOException {
        return bytes.readFloat();
    }

    @Override
    public double readDouble() throws IOException {
        return bytes.readDouble();
    }

    @Override
    public void readFixed(byte[] into, int start, int length) throws IOException {
        bytes.readFixed(into, start, length);
    }

    @Override
    public void skipFixed(int length) throws IOException {
        bytes.skipFixed(length);
    }

    @Override
    public int readEnum() throws IOException {
        return bytes.readEnum();
    }

    @Override
    public int readIndex() throws IOException {
        return bytes.readIndex();
    }
}
