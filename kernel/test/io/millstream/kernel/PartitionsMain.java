package io.millstream.kernel;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Reads lines of a key in hexadecimal digits, a space and a number of partitions; prints the partitions. */
public final class PartitionsMain {
    private PartitionsMain() {}

    public static void main(String[] arguments) throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(Partitions.of(HexFormat.of().parseHex(words[0]), Integer.parseInt(words[1])));
        }
    }
}
