package io.millstream.kernel.task;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;

/**
 * Restores a store of processors. The argument is its layout. Each line it reads is a record of the changelog: key,
 * value or `-`, and timestamp. It prints the entries that the store then has.
 */
public final class LaidOutMain {
    private static final HexFormat HEX = HexFormat.of();
    private static final int MOST = 20;

    private LaidOutMain() {}

    public static void main(String[] arguments) throws IOException {
        Random dice = new Random(1);
        List<TaskPlan.Store> stores = List.of(new TaskPlan.Store("s", "log", true, arguments[0], "", false, false, ""));
        try (State state = new State(stores, null);
                BufferedReader in =
                        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            long read = 0;
            for (String line = in.readLine(); line != null; ) {
                LaidOut restoring = LaidOut.of(state, 0, arguments[0]);
                for (int left = 1 + dice.nextInt(MOST); left > 0 && line != null; left--, read++) {
                    String[] parts = line.split(" ");
                    byte[] value = parts[1].equals("-") ? null : HEX.parseHex(parts[1].substring(1));
                    restoring.restore(HEX.parseHex(parts[0]), value, Long.parseLong(parts[2]));
                    line = in.readLine();
                }
                state.restored(0, read);
            }
            try (Cursor entries = state.range(0, null, null, false)) {
                while (entries.next()) {
                    System.out.println(
                            "=" + HEX.formatHex(entries.key()) + " " + HEX.formatHex(entries.value()));
                }
            }
        }
    }
}
