package io.millstream.kernel.task;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicPartition;

/** What the driver makes of the reports of two executors, `a` and `b`: prints it. */
public final class RemoteMain {
    private static final TopicPartition FIRST = new TopicPartition("t", 0);

    private RemoteMain() {}

    public static void main(String[] arguments) {
        tasks();
        figures();
    }

    private static void tasks() {
        Remote remote = new Remote();
        List<String> told = new ArrayList<>();
        Report first = report("a", 1, Map.of(0, 5L, 1, 6L), Map.of("t-0", 10L, "t-1", 8L), 18);
        System.out.println(remote.take("a", wishes -> told.add("a"), first));
        System.out.println(remote.take("a", wishes -> told.add("a"), first));
        // A task has moved: what its former owner says of it does not count.
        Report second = report("b", 1, Map.of(1, 9L), Map.of("t-1", 12L), 4);
        System.out.println(remote.take("b", wishes -> told.add("b"), second));
        System.out.println(new TreeMap<>(remote.epochs()) + " " + remote.positions() + " " + remote.records());
        System.out.println(remote.location(0) + " " + remote.location(1) + " " + remote.location(2));
        remote.send(Wishes.over("run"));
        System.out.println(told.stream().sorted().toList());

        CompletableFuture<Void> asked = remote.ask("g", 60_000);
        Map<Long, String> questions = remote.questions();
        System.out.println(questions.values() + " " + asked.isDone());
        Long[] answers = questions.keySet().toArray(Long[]::new);
        remote.take("b", wishes -> told.add("b"), report("b", 2, Map.of(), Map.of(), 5, answers));
        System.out.println(asked.isDone());
        remote.lost("a");
        System.out.println(asked.isDone() + " " + remote.questions());
        System.out.println(remote.records() + " " + remote.location(0));
        System.out.println(remote.ask("g", 1).handle((nothing, late) -> late == null).join());
        remote.lost("b");
        System.out.println(remote.ask("g", 60_000).isDone());
    }

    private static Report report(
            String at,
            long number,
            Map<Integer, Long> epochs,
            Map<String, Long> positions,
            long records,
            Long... answers) {
        return new Report(
                "run",
                number,
                at,
                new HashMap<>(epochs),
                new HashSet<>(epochs.keySet()),
                new HashMap<>(positions),
                new HashMap<>(),
                records,
                0,
                new HashSet<>(List.of(answers)),
                new Figures());
    }

    private static void figures() {
        Figures driver = new Figures();
        Figures executor = new Figures();
        executor.begun(Map.of(FIRST, 3L));
        executor.committed(Map.of(FIRST, 5L));
        executor.dropped("null", "t-0");
        executor.late("late", new long[] {7, 1});
        driver.add(executor.handOver());
        driver.add(executor.handOver());
        System.out.println(driver.take(0));
        executor.late("late", new long[] {9, 2});
        executor.late("late", new long[] {8, 3});
        executor.reached(Map.of(FIRST, 8L));
        driver.add(executor.handOver());
        System.out.println(String.join(" ", driver.unfinished()));
        System.out.println(driver.take(1));
    }
}
