package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.millstream.kernel.python.Program;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The runs of queries, as Python starts, watches and ends them. All of it is called on the driver. */
public final class TaskRuns {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, TaskPlan> PLANS = new ConcurrentHashMap<>();

    private TaskRuns() {}

    /**
     * A query of this name is about to start.
     *
     * @param plan as {@link TaskPlan#of} takes it
     * @param times the timestamp extractors of sources that have not Kafka's default
     * @param fillings the processors that fill global tables, by their topics
     * @param partitions those that its tasks are; the others are another client's
     * @param spares how many readers may wait for further partitions
     * @return how many tasks it has: there may be no topic with so many partitions
     */
    public static int begin(
            String name,
            String plan,
            List<Times> times,
            Map<String, Program> fillings,
            List<Integer> partitions,
            int spares)
            throws InterruptedException {
        TaskPlan made = TaskPlan.of(plan, times, fillings);
        TaskPlan counted = made.isInMemory() ? made : counted(made);
        Tasks tasks = Tasks.of(counted.run());
        tasks.spares = spares;
        tasks.assign(counted.existing(partitions), 0);
        if (!counted.isInMemory()) {
            Endpoint.open();
        }
        PLANS.put(name, counted);
        if (partitions.isEmpty() && spares > 0) { // its tasks will run here
            tasks.beReady(counted);
        }
        return counted.existing(partitions).size();
    }

    private static TaskPlan counted(TaskPlan plan) throws InterruptedException {
        Map<String, String> resets = new TreeMap<>(plan.resets());
        try (Admin admin = Topics.admin(plan)) {
            Set<String> names = new TreeSet<>(plan.topics().keySet());
            if (!plan.patterns().isEmpty()) {
                Set<String> all = admin.listTopics().names().get();
                plan.patterns().forEach((each, begins) -> {
                    Pattern pattern = Pattern.compile(each);
                    all.stream().filter(name -> pattern.matcher(name).matches()).forEach(name -> {
                        names.add(name);
                        resets.putIfAbsent(name, begins);
                    });
                });
            }
            Map<String, Integer> counts = new TreeMap<>();
            Map<String, TopicDescription> found = admin.describeTopics(names).allTopicNames().get();
            found.forEach((topic, description) ->
                    counts.put(topic, description.partitions().size()));
            return plan.with(counts, resets);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException missing) {
                throw missing;
            }
            throw new IllegalStateException("the topics of a task cannot be described", error.getCause());
        }
    }

    static TaskPlan plan(String name) {
        TaskPlan plan = PLANS.get(name);
        if (plan == null) {
            throw new IllegalStateException("no run of " + name + " has begun");
        }
        return plan;
    }

    /** Have everything that was read committed, and nothing more read; whether that was done within the time. */
    public static boolean end(String run, long patienceMs) throws InterruptedException {
        return Tasks.end(run, patienceMs);
    }

    /**
     * The partitions that its tasks are from now on. Those that go on are not disturbed; what is new is read as soon as
     * those that go on have committed.
     *
     * @return whether those that are not its any more have committed and are closed; if not, they still may
     */
    public static boolean assign(String run, List<Integer> partitions, long patienceMs) throws InterruptedException {
        Tasks tasks = Tasks.here(run);
        TaskPlan plan = PLANS.values().stream()
                .filter(each -> each.run().equals(run))
                .findAny()
                .orElse(null);
        return tasks == null || plan == null || tasks.assign(plan.existing(partitions), patienceMs);
    }

    /** Waits until a query that was begun without partitions could take some at once; whether it can. */
    public static boolean awaitReader(String run, long patienceMs) throws InterruptedException {
        Tasks tasks = Tasks.here(run);
        return tasks != null && tasks.awaitReader(patienceMs);
    }

    /**
     * Keeps the state of tasks that other clients run, so that they can begin here at once.
     *
     * @param plan as {@link TaskPlan#of} takes it; its run is their name
     * @param partitions which tasks, from now on
     * @return those of them that have had all that their changelogs had when they were opened, as JSON
     */
    public static String follow(String plan, List<Integer> partitions) {
        TaskPlan made = TaskPlan.of(plan);
        if (made.stores().stream().noneMatch(TaskPlan.Store::isRestored)) { // there is nothing to keep
            return new TreeSet<>(partitions).toString();
        }
        Standbys.follow(made, partitions);
        return Standbys.caughtUp(made.run()).toString();
    }

    /** Does so no more. */
    public static void leave(String run) {
        Standbys.close(run);
    }

    /** Have everything that was read committed soon. */
    public static void commit(String run) {
        Tasks tasks = Tasks.here(run);
        if (tasks != null) {
            tasks.hurry();
        }
    }

    /**
     * Waits until the global tables of a topic have what it has now, here and in executors; whether that was done
     * within the time.
     */
    public static boolean isUpToDate(String topic, long patienceMs) throws InterruptedException {
        List<CompletableFuture<Void>> all = new ArrayList<>();
        all.add(GlobalTable.upToDate(topic).orTimeout(patienceMs, TimeUnit.MILLISECONDS));
        PLANS.forEach((name, plan) -> {
            Tasks tasks = Tasks.here(plan.run());
            if (tasks != null && plan.globals().stream().anyMatch(each -> each.topic().equals(topic))) {
                all.add(tasks.ask(topic, patienceMs));
            }
        });
        try {
            CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get();
            return true;
        } catch (@SuppressWarnings("unused") ExecutionException late) {
            return false;
        }
    }

    /** The query has ended; another run of it may have begun. */
    public static void close(String run) {
        PLANS.values().removeIf(plan -> plan.run().equals(run));
        Tasks.close(run);
        Figures.end(run);
    }

    /**
     * How far a run is, as JSON: `records`, how many it has read; and by topic-partition: `read`, the next offset;
     * `committed`, that of what is not done with; `ends`, where it ends, as far as that is known; `opening`, how many
     * of its tasks are not open yet, and `left`, how many records these still have to restore.
     */
    public static String progress(String run) {
        Tasks tasks = Tasks.here(run);
        ObjectNode all = JSON.createObjectNode();
        all.put("records", tasks == null ? 0 : tasks.records());
        ObjectNode read = all.putObject("read");
        ObjectNode ends = all.putObject("ends");
        ObjectNode committed = all.putObject("committed");
        if (tasks != null) {
            tasks.positions().forEach(read::put);
            tasks.ends().forEach(ends::put);
            Set<Integer> opening = new TreeSet<>(tasks.lot().partitions());
            opening.removeAll(tasks.open());
            all.put("opening", opening.size()).put("left", tasks.left());
        }
        Figures.of(run).committed().forEach(committed::put);
        return all.toString();
    }

    /**
     * What was read, written and dropped since it was last asked for, as {@link Figures#take} has it.
     *
     * @param batch the number that its batch is to have
     */
    public static String figures(String run, long batch) {
        Tasks tasks = Tasks.here(run);
        return (tasks == null ? Figures.of(run) : tasks.figures()).take(batch);
    }

    /** What was read in this run and is not committed, as {@link Figures#unfinished} has it. */
    public static String[] unfinished(String run) {
        return Figures.of(run).unfinished();
    }
}
