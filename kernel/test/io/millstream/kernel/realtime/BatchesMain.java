package io.millstream.kernel.realtime;

import java.io.UncheckedIOException;
import java.util.concurrent.TimeUnit;

/** Prints what becomes of batches and runs: which waits, which is short, which end is heard, which run is forgotten. */
public final class BatchesMain {
    private static final String RUN = "run";

    private BatchesMain() {}

    public static void main(String[] arguments) throws InterruptedException {
        Batches old = Batches.begin(RUN, "p0", 16, 2);
        System.out.println("first waits: " + waits());
        Batches.planned(RUN, "source", 0);
        System.out.println("without partitions waits: " + waits());
        Batches.planned(RUN, "another", 1);
        System.out.println("with one waits: " + waits());
        Batches.planned(RUN, "another", 0);
        Thread query = new Thread(BatchesMain::run, "query");
        query.start();
        System.out.println("settled: " + Batches.end(RUN, 10_000));
        query.interrupt();
        query.join(10_000);
        Batches young = Batches.begin(RUN, "p0", 16, 2);
        Batches.forget(RUN, old);
        System.out.println("the new one is there: " + (Batches.of(RUN) == young));
        Batches.forget(RUN, young);
        System.out.println("forgotten: " + (Batches.of(RUN) == null));
        lengths(5);
    }

    /** Which of the first batches of a run last as many seconds as their number, from the moment a reader asks. */
    private static void lengths(int batches) {
        Batches run = Batches.begin(RUN, "p0", 16, 2);
        long now = 1;
        for (int number = 1; number <= batches; number++) {
            Batches.beginning(RUN);
            Batches.beginning(RUN); // for another source
            boolean isLong = !run.isOver(0, now);
            now += TimeUnit.SECONDS.toNanos(number);
            isLong &= !run.isOver(0, now - 1);
            System.out.println(number + " s: " + (isLong && run.isOver(0, now)));
        }
        Batches.beginning(RUN);
        System.out.println("the next one is over: "
                + (run.isOver(0, now) || run.isOver(0, now + TimeUnit.HOURS.toNanos(1))));
    }

    private static boolean waits() {
        long began = System.nanoTime();
        Batches.beginning(RUN);
        return System.nanoTime() - began > TimeUnit.SECONDS.toNanos(1);
    }

    private static void run() {
        try {
            while (true) {
                Batches.beginning(RUN);
            }
        } catch (UncheckedIOException wanted) {
            System.out.println(wanted.getCause().getMessage());
        }
    }
}
