package io.millstream.kernel.serdes;

import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/** JSON that is being written. */
final class JsonOut {
    private static final String HEX = "0123456789ABCDEF";

    private byte[] buffer = new byte[128];
    private int size;

    void write(char ascii) {
        if (size == buffer.length) {
            buffer = Arrays.copyOf(buffer, 2 * size);
        }
        buffer[size++] = (byte) ascii;
    }

    void ascii(String text) {
        for (int i = 0; i < text.length(); i++) {
            write(text.charAt(i));
        }
    }

    void bytes(byte[] from, int start, int length) {
        if (buffer.length - size < length) {
            buffer = Arrays.copyOf(buffer, Math.max(2 * buffer.length, size + length));
        }
        System.arraycopy(from, start, buffer, size, length);
        size += length;
    }

    byte[] toBytes() {
        return Arrays.copyOf(buffer, size);
    }

    /** A string with its quotes. Bytes that are not UTF-8 are replaced by U+FFFD, as Java does. */
    void quoted(UTF8String given) {
        UTF8String text = given.isValid() ? given : UTF8String.fromString(given.toString());
        byte[] bytes = text.getBytes();
        write('"');
        int from = 0;
        for (int i = 0; i < bytes.length; i++) {
            byte next = bytes[i];
            if (next >= 0 && next < ' ' || next == '"' || next == '\\') {
                bytes(bytes, from, i - from);
                from = i + 1;
                escaped(next);
            }
        }
        bytes(bytes, from, bytes.length - from);
        write('"');
    }

    private void escaped(byte next) {
        int kind = "\"\\\b\f\n\r\t".indexOf(next);
        write('\\');
        if (kind >= 0) {
            write("\"\\bfnrt".charAt(kind));
        } else {
            ascii("u00");
            write(HEX.charAt(next >> 4));
            write(HEX.charAt(next & 15));
        }
    }
}
