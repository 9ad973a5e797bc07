package io.millstream.kernel.core;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;

/**
 * Sums of records. Each line of the input is one: key in hex, timestamp, number, headers (empty for none); with commas
 * between. Of each key there
 * is a line in the output, likewise, and an empty line whenever it begins anew. Argument: of how many keys it is full.
 */
public final class SumsMain {
    private SumsMain() {}

    public static void main(String[] arguments) throws IOException {
        Sums sums = new Sums(new Parts(List.of(Rules.of("sum", "bigint"))), Integer.parseInt(arguments[0]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] record = line.split(",", -1);
            Object[] parts = {Long.valueOf(record[2])};
            byte[] headers = record[3].isEmpty() ? null : record[3].getBytes(StandardCharsets.UTF_8);
            sums.add(HexFormat.of().parseHex(record[0]), Long.parseLong(record[1]), parts, headers);
            if (sums.isFull()) {
                print(sums);
            }
        }
        print(sums);
    }

    private static void print(Sums sums) {
        for (int i = 0; i < sums.size(); i++) {
            String key = HexFormat.of().formatHex(sums.key(i));
            byte[] headers = sums.headers(i);
            String name = headers == null ? "" : new String(headers, StandardCharsets.UTF_8);
            System.out.println(key + "," + sums.at(i) + "," + sums.parts(i)[0] + "," + name);
        }
        System.out.println();
        sums.clear();
    }
}
