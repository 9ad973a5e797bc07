package io.millstream.kernel.task;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells the driver what the tasks of a run in this executor have done, and hears what it wants of them: when a task
 * comes or goes, and on a thread of its own every so often.
 */
final class Reporting {
    private static final Logger LOG = LoggerFactory.getLogger(Reporting.class);
    private static final long EVERY_MS = 100;
    /** If nothing has happened, it is said each time that so many would have been due. */
    private static final int QUIET = 10;

    private final String run;
    private final Tasks tasks;
    private final Endpoint endpoint = Endpoint.open();
    private final Object signal = new Object();
    private boolean isDue;
    private boolean isOver;
    private long number;
    /** What the driver does not have for certain. */
    private Figures figures;

    private volatile long said;

    Reporting(String run, Tasks tasks) {
        this.run = run;
        this.tasks = tasks;
        Thread thread = new Thread(this::follow, "millstream-reports-" + run);
        thread.setDaemon(true);
        thread.start();
    }

    /** Something has happened that the driver waits for. */
    void soon() {
        synchronized (signal) {
            isDue = true;
            signal.notifyAll();
        }
    }

    /** Its thread releases everything of the run, and ends. */
    void end() {
        synchronized (signal) {
            isOver = true;
            signal.notifyAll();
        }
    }

    /** Tells the driver now; it knows it when this returns. An interrupt does not keep it from that. */
    synchronized void now() {
        boolean wasInterrupted = Thread.interrupted();
        try {
            if (figures == null) {
                number++;
                figures = tasks.newFigures();
            }
            Report report = tasks.report(number, figures);
            Wishes wishes = endpoint.tell(report);
            figures = null;
            said = report.records();
            tasks.hear(wishes);
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void follow() {
        try {
            for (int quiet = 0; awaited(); quiet++) {
                if (isDue() || said != tasks.records() || quiet >= QUIET) {
                    quiet = 0;
                    tell();
                }
            }
        } catch (InterruptedException interrupted) {
            LOG.warn("run {} cannot be ended by its driver any more", run, interrupted);
        }
        Tasks.close(run);
    }

    /** Waits until something may have to be said; whether the run goes on. */
    private boolean awaited() throws InterruptedException {
        synchronized (signal) {
            if (!isDue && !isOver) {
                signal.wait(EVERY_MS);
            }
            return !isOver;
        }
    }

    private boolean isDue() {
        synchronized (signal) {
            boolean was = isDue;
            isDue = false;
            return was;
        }
    }

    /** The same; if the driver cannot be reached, it is said the next time. */
    void tell() {
        try {
            now();
        } catch (Exception error) { // Spark's, which is not declared
            LOG.warn("the driver cannot be told of run {}: {}", run, error.toString());
        }
    }
}
