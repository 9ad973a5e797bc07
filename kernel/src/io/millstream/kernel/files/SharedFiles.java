package io.millstream.kernel.files;

import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SparkSession;

/** Whether executors see a directory of the driver's under the same path: they look for a file in it. */
public final class SharedFiles {
    private SharedFiles() {}

    /**
     * The reports of executors that do not see a file, or cannot write beside it; empty if all can.
     *
     * @param tasks as many as can run at once: Spark distributes them over all idle executors
     */
    public static List<String> missing(SparkSession spark, String file, int tasks) {
        MapFunction<Long, String> look = task -> problem(Path.of(file));
        List<String> said = spark.range(0, tasks, 1, tasks).map(look, Encoders.STRING()).collectAsList();
        TreeSet<String> all = new TreeSet<>(said);
        all.remove("");
        return List.copyOf(all);
    }

    private static String problem(Path file) throws IOException {
        String host = InetAddress.getLocalHost().getHostName();
        if (!Files.exists(file)) {
            return host + " does not have it";
        }
        try {
            Files.delete(Files.createFile(file.resolveSibling(file.getFileName() + "-" + UUID.randomUUID())));
            return "";
        } catch (IOException refused) {
            return host + " cannot write there (" + refused + ")";
        }
    }
}
