package io.millstream.kernel.task;

import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.common.errors.ConcurrentTransactionsException;
import org.apache.kafka.common.errors.CoordinatorLoadInProgressException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.InvalidPidMappingException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The calls of Kafka's clients that a task waits for, and its failure, after which it makes none. */
final class Calls {
    private static final Logger LOG = LoggerFactory.getLogger(Calls.class);

    private final String task;
    private final String application;
    private final long timeoutMs;
    private volatile RuntimeException failure;
    /** The thread that waits for a client; null if none does. */
    private Thread calling;
    /** Whether it was interrupted because of a failure. */
    private boolean isCut;

    Calls(String task, TaskPlan plan) {
        this.task = task;
        this.application = plan.application();
        this.timeoutMs = plan.timeoutMs();
    }

    /** The task fails with this, and what it waits for now; any thread may call it. */
    synchronized void fail(RuntimeException why) {
        if (failure == null) {
            failure = meant(why);
        }
        if (calling != null && !isCut) {
            // The client does not end a call by itself that waits behind one that has failed for good.
            isCut = true;
            calling.interrupt();
        }
    }

    /** Throws what it has failed with. */
    void check() {
        if (failure != null) {
            throw failure;
        }
    }

    /** Does something again as long as it times out; Kafka's clients allow it. */
    void retried(String what, Runnable action) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        while (true) {
            try {
                call(action);
                return;
            } catch (TimeoutException | CoordinatorLoadInProgressException | ConcurrentTransactionsException error) {
                if (System.nanoTime() - until > 0) {
                    throw new TimeoutException("task " + task + ": cannot " + what + " within " + timeoutMs + " ms: "
                            + error.getMessage(), error);
                }
                LOG.warn("task {}: cannot {} yet, and tries again: {}", task, what, error.getMessage());
            }
        }
    }

    private void call(Runnable action) {
        synchronized (this) {
            check();
            calling = Thread.currentThread();
        }
        try {
            action.run();
        } catch (InterruptException interrupted) {
            check();
            throw interrupted;
        } finally {
            synchronized (this) {
                calling = null;
                if (isCut) {
                    isCut = false;
                    Thread.interrupted();
                }
            }
        }
    }

    /** An error of Kafka's clients as one of ours, if it has a meaning here. */
    RuntimeException meant(RuntimeException error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof TaskMovedException) {
                return error;
            }
            if (each instanceof ProducerFencedException
                    || each instanceof InvalidProducerEpochException
                    || each instanceof InvalidPidMappingException
                    || each instanceof FencedInstanceIdException
                    || each instanceof CommitFailedException) {
                return new TaskMovedException("task " + task + " of '" + application
                        + "' has moved: another process has taken it over, or its transaction has timed out", error);
            }
        }
        return error;
    }
}
