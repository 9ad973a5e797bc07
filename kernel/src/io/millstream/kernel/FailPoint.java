package io.millstream.kernel;

import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A place where tests stop a process between two steps, to kill it there. It does nothing without the system property
 * {@code millstream.kernel.failpoints}, which names a directory.
 *
 * <p>A file there that is named after the place stops the first thread that reaches it. The thread renames the file
 * to {@code <place>.reached}, and continues when that file is gone.
 */
public final class FailPoint {
    private static final String DIRECTORY = System.getProperty("millstream.kernel.failpoints");
    private static final long LOOK_EVERY_MS = 5;

    private FailPoint() {}

    /** Return at once, unless a test waits here. */
    public static void reach(String place) {
        if (DIRECTORY != null) {
            stop(Path.of(DIRECTORY, place), Path.of(DIRECTORY, place + ".reached"));
        }
    }

    private static void stop(Path armed, Path reached) {
        try {
            if (!Files.exists(armed) || !armed.toFile().renameTo(reached.toFile())) {
                return; // another thread was first
            }
            while (Files.exists(reached)) {
                Thread.sleep(LOOK_EVERY_MS);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted at a fail point", interrupted);
        }
    }
}
