package io.millstream.kernel.core;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

/**
 * A sorted set of keys in pages. Each line of the input is a sign, and a key in hex: + and - add and remove; = prints
 * the keys from that one on, and, behind a bar, those before it, backwards. A line with ! alone flushes the pages,
 * begins with them anew, and prints how many there are.
 */
public final class KeysMain {
    private KeysMain() {}

    public static void main(String[] arguments) throws IOException {
        Map<ByteBuffer, byte[]> kept = new HashMap<>();
        Keys.Pages pages = new Keys.Pages() {
            @Override
            public byte[] read(byte[] name) {
                return kept.get(ByteBuffer.wrap(name));
            }

            @Override
            public void write(byte[] name, byte[] content) {
                if (content == null) {
                    kept.remove(ByteBuffer.wrap(name));
                } else {
                    kept.put(ByteBuffer.wrap(name), content);
                }
            }
        };
        Keys keys = new Keys(pages, 0);
        HexFormat hex = HexFormat.of();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] key = hex.parseHex(line.substring(1));
            switch (line.charAt(0)) {
                case '+' -> keys.add(key);
                case '-' -> keys.remove(key);
                case '!' -> {
                    keys.flush();
                    keys = new Keys(pages, keys.top());
                    System.out.println(kept.size());
                }
                default -> {
                    StringBuilder found = new StringBuilder();
                    for (byte[] each = keys.higher(key, true); each != null; each = keys.higher(each, false)) {
                        found.append(hex.formatHex(each)).append(' ');
                    }
                    found.append('|');
                    byte[] end = key.length == 0 ? null : key;
                    for (byte[] each = keys.lower(end); each != null; each = keys.lower(each)) {
                        found.append(' ').append(hex.formatHex(each));
                    }
                    System.out.println(found);
                }
            }
        }
    }
}
