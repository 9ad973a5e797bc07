package io.millstream.kernel.state;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.RowFactory;

/** Rows of random values, packed: as many as the input says; prints how many come out as they were, in order. */
public final class PackedResultsMain {
    private PackedResultsMain() {}

    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[0]);
        Random chosen = new Random(5);
        List<Object[]> expected = new ArrayList<>();
        PackedResults packed = new PackedResults(6, RowFactory::create);
        for (int i = 0; i < count; i++) {
            Object[] row = new Object[6];
            for (int column = 0; column < row.length; column++) {
                row[column] = value(chosen);
            }
            expected.add(row.clone());
            packed.add(row);
            Arrays.fill(row, null);
        }
        int same = 0;
        while (packed.hasNext()) {
            Object[] row = new Object[6];
            var found = packed.next();
            for (int column = 0; column < row.length; column++) {
                row[column] = found.get(column);
            }
            same += Arrays.deepEquals(row, expected.get(same)) ? 1 : 0;
        }
        System.out.println(same);
    }

    private static Object value(Random chosen) {
        byte[] bytes = new byte[chosen.nextInt(500) == 0 ? 1 << 20 : chosen.nextInt(300)];
        chosen.nextBytes(bytes);
        return switch (chosen.nextInt(6)) {
            case 0 -> chosen.nextLong();
            case 1 -> chosen.nextInt();
            case 2 -> "text " + chosen.nextInt();
            case 3 -> chosen.nextDouble();
            case 4 -> null;
            default -> bytes;
        };
    }
}
