package io.millstream.kernel;

import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A place where tests stop a process between two steps, to kill it there. Without the system property
 * {@code millstream.kernel.failpoints}, which names a directory, it is nothing.
 *
 * <p>A file there that is called as the place has the first one who comes by wait: it renames the file to
 * {@code <place>.reached}, and goes on when that is gone.
 */
public final class FailPoint {
    private static final String DIRECTORY = System.getProperty("millstream.kernel.failpoints");
    private static final long LOOK_EVERY_MS = 5;

    private FailPoint() {}

    /** Go on, unless a test is waiting here. */
    public static void reach(String place) {
        if (DIRECTORY != null) {
            stop(Path.of(DIRECTORY, place), Path.of(DIRECTORY, place + ".reached"));
        }
    }

    private static void stop(Path armed, Path reached) {
        try {
            if (!Files.exists(armed) || !armed.toFile().renameTo(reached.toFile())) {
                return; // another one was first
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
