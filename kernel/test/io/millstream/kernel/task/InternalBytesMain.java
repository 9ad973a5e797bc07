package io.millstream.kernel.task;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HexFormat;

/**
 * Writes a line for each that it reads, in hexadecimal digits, where `-` is null: of `hash VALUE` the hash; of `change
 * NEW OLD` the change, and what is read from that.
 */
public final class InternalBytesMain {
    private InternalBytesMain() {}

    public static void main(String[] none) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("hash")) {
                System.out.println(text(InternalBytes.hash(bytes(words[1]))));
            } else {
                byte[] change = InternalBytes.change(bytes(words[1]), bytes(words[2]));
                byte[] now = InternalBytes.of(change, (byte) 1);
                byte[] old = InternalBytes.of(change, (byte) 0);
                System.out.println(text(change) + " " + text(now) + " " + text(old));
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HexFormat.of().parseHex(text);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : HexFormat.of().formatHex(bytes);
    }
}
