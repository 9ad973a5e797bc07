package io.millstream.kernel.task;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Function;

/** The tasks of a run that are in executors, as these have told the driver. Any thread may ask. */
final class Remote {
    private static final AtomicLong QUESTIONS = new AtomicLong();

    private record Executor(Consumer<Wishes> wanted, Report report) {}

    /** Whether tables are read up to their ends, and who has not answered. */
    private record Question(String topic, Set<String> open, CompletableFuture<Void> answered) {
        void settle() {
            if (open.isEmpty()) {
                answered.complete(null);
            }
        }
    }

    private final Map<String, Executor> executors = new ConcurrentHashMap<>();
    private final Map<Long, Question> questions = new ConcurrentHashMap<>();
    /** How many records were read by executors that are lost. */
    private final AtomicLong lost = new AtomicLong();

    /**
     * What an executor says; whether its figures are new.
     *
     * @param from its address
     * @param wanted takes what is wanted of it, without waiting
     */
    boolean take(String from, Consumer<Wishes> wanted, Report report) {
        Executor before = executors.put(from, new Executor(wanted, report));
        report.answered().forEach(each -> {
            Question question = questions.get(each);
            if (question != null) {
                question.open.remove(from);
                question.settle();
            }
        });
        return before == null || before.report.number() != report.number();
    }

    void lost(String address) {
        Executor before = executors.remove(address);
        if (before != null) {
            lost.addAndGet(before.report.records());
            questions.values().forEach(question -> {
                question.open.remove(address);
                question.settle();
            });
        }
    }

    /** Tells all executors. */
    void send(Wishes wishes) {
        executors.values().forEach(executor -> executor.wanted.accept(wishes));
    }

    /** The partitions whose tasks are open there. */
    Set<Integer> open() {
        Set<Integer> all = new TreeSet<>();
        executors.values().forEach(executor -> all.addAll(executor.report.open()));
        return all;
    }

    Map<String, Long> positions() {
        return greatest(Report::positions);
    }

    Map<String, Long> ends() {
        return greatest(Report::ends);
    }

    /** The epoch of each task that is in an executor, by its partition: that of its owner. */
    HashMap<Integer, Long> epochs() {
        return new HashMap<>(greatest(Report::epochs));
    }

    /** A task may have moved, and its former owner be the one that said less. */
    private <K> Map<K, Long> greatest(Function<Report, HashMap<K, Long>> what) {
        Map<K, Long> all = new TreeMap<>();
        executors.values().forEach(executor ->
                what.apply(executor.report).forEach((each, number) -> all.merge(each, number, Math::max)));
        return all;
    }

    long records() {
        return lost.get()
                + executors.values().stream()
                        .mapToLong(executor -> executor.report.records())
                        .sum();
    }

    /** Where the owner of a task is; null: in no executor. */
    String location(int partition) {
        Long epoch = epochs().get(partition);
        return executors.values().stream()
                .map(Executor::report)
                .filter(report -> epoch != null && epoch.equals(report.epochs().get(partition)))
                .map(Report::location)
                .findFirst()
                .orElse(null);
    }

    /** Done when the executors have read all global tables of a topic up to their ends; fails if that takes longer. */
    CompletableFuture<Void> ask(String topic, long patienceMs) {
        Set<String> open = ConcurrentHashMap.newKeySet();
        open.addAll(executors.keySet());
        Question question = new Question(topic, open, new CompletableFuture<>());
        long number = QUESTIONS.incrementAndGet();
        questions.put(number, question);
        open.retainAll(executors.keySet());
        question.settle();
        return question.answered
                .orTimeout(patienceMs, TimeUnit.MILLISECONDS)
                .whenComplete((nothing, late) -> questions.remove(number));
    }

    HashMap<Long, String> questions() {
        HashMap<Long, String> all = new HashMap<>();
        questions.forEach((number, question) -> all.put(number, question.topic));
        return all;
    }
}
