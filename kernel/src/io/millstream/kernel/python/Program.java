package io.millstream.kernel.python;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A Python function and how to run it, as the driver hands it to tasks.
 *
 * @param command the Python to start, and what is asked of it
 * @param environment variables for it, besides those that this process has
 * @param files names of the files among Spark's own (SparkFiles) that are on its path: the user's --py-files
 * @param version of the Python that pickled the function
 * @param pickled the function
 * @param patienceMs how long Python may be at one record
 */
public record Program(
        List<String> command,
        Map<String, String> environment,
        List<String> files,
        String version,
        byte[] pickled,
        long patienceMs)
        implements Serializable {
    private static final long serialVersionUID = 1;

    /** Copies, because what Python hands over is not serializable. */
    public Program {
        command = new ArrayList<>(command);
        environment = new HashMap<>(environment);
        files = new ArrayList<>(files);
    }
}
