package io.millstream.kernel.core;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Rows of a table in memory. The first line of the input is how many bytes there is room for. Each other one is a sign
 * and a key: + puts a row, whose time, text, and how often that is repeated come behind; - removes it; = prints the
 * row's time, the length of its text, and the text once, or nothing. In the end it prints whether all rows are there,
 * and whether it has taken more bytes than there were.
 */
public final class PackedRowsMain {
    private PackedRowsMain() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        long room = Long.parseLong(lines.readLine());
        long[] taken = {0, 0};
        PackedRows rows = new PackedRows(2, true, more -> {
            if (more > 0 && taken[0] + more > room) {
                return false;
            }
            taken[0] += more;
            taken[1] = Math.max(taken[1], taken[0]);
            return true;
        });
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.substring(1).split(" ");
            byte[] key = words[0].getBytes(StandardCharsets.UTF_8);
            switch (line.charAt(0)) {
                case '+' -> {
                    byte[] text = words[2].repeat(Integer.parseInt(words[3])).getBytes(StandardCharsets.UTF_8);
                    Object[] parts = {null, text};
                    rows.put(key, new Window(0, 0, Long.parseLong(words[1]), parts));
                }
                case '-' -> rows.remove(key);
                default -> print(rows.find(key));
            }
        }
        System.out.println(rows.isWhole() + " " + (taken[1] > room || taken[0] != rows.bytes()));
    }

    private static void print(Window row) {
        if (row == null) {
            System.out.println();
        } else {
            String text = new String((byte[]) row.parts[1], StandardCharsets.UTF_8);
            boolean isRepeated = text.equals(text.substring(0, 3).repeat(text.length() / 3)) && row.parts[0] == null;
            System.out.println(row.at + " " + text.length() + " " + (isRepeated ? text.substring(0, 3) : text));
        }
    }
}
