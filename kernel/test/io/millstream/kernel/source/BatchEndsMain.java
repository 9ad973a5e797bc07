package io.millstream.kernel.source;

import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import java.util.stream.Collectors;

/**
 * Prints where each batch ends that reads given partitions.
 *
 * <p>A line of the input is a case: the limit, whether records have times, and for each partition the times of its
 * records, with commas between them. A line of the output has the ends of one batch, and how often times were looked
 * up; an empty line follows the last batch of a case. A line that begins with "limits" is about these alone.
 */
public final class BatchEndsMain {
    private BatchEndsMain() {}

    public static void main(String[] arguments) {
        try (Scanner cases = new Scanner(System.in)) {
            while (cases.hasNextLine()) {
                String[] words = cases.nextLine().split(" ");
                if (words[0].equals("limits")) {
                    limits(words);
                    continue;
                }
                List<long[]> partitions = Arrays.stream(words)
                        .skip(2)
                        .map(times -> Arrays.stream(times.split(",")).mapToLong(Long::parseLong).toArray())
                        .toList();
                run(Long.parseLong(words[0]), Boolean.parseBoolean(words[1]), partitions);
                System.out.println();
            }
        }
    }

    /** The limits of successive batches that take so many seconds: `limits least most pause seconds...`. */
    private static void limits(String[] words) {
        long least = Long.parseLong(words[1]);
        long limit = least;
        StringBuilder limits = new StringBuilder().append(limit);
        for (int batch = 4; batch < words.length; batch++) {
            double seconds = Double.parseDouble(words[batch]);
            limit = BatchEnds.next(limit, least, Long.parseLong(words[2]), seconds, Double.parseDouble(words[3]));
            limits.append(' ').append(limit);
        }
        System.out.println(limits);
    }

    private static void run(long limit, boolean hasTimes, List<long[]> partitions) {
        long[] from = new long[partitions.size()];
        long[] to = partitions.stream().mapToLong(times -> times.length).toArray();
        BatchEnds ends = new BatchEnds();
        while (!Arrays.equals(from, to)) {
            int[] looked = {0};
            from = ends.of(
                    from,
                    to,
                    limit,
                    !hasTimes ? null : time -> {
                        looked[0]++;
                        return partitions.stream().mapToLong(times -> first(times, time)).toArray();
                    },
                    1_790_000_000_000L);
            System.out.println(Arrays.stream(from).mapToObj(String::valueOf).collect(Collectors.joining(" ")) + " "
                    + looked[0]);
        }
    }

    /** As a broker answers: whatever was read already. */
    private static long first(long[] times, long time) {
        for (int offset = 0; offset < times.length; offset++) {
            if (times[offset] >= time) {
                return offset;
            }
        }
        return Long.MAX_VALUE;
    }
}
