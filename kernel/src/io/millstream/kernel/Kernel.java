package io.millstream.kernel;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/**
 * Which kernel this is. Python asks the one that Spark has found, and compares it with its own.
 *
 * <p>An executor may have another kernel on its class path. So the sink carries the driver's version and digest
 * there, and calls {@link #require}.
 */
public final class Kernel {
    private static final Properties MADE_FROM = read();

    private Kernel() {}

    /** The version of Millstream that this kernel is a part of. */
    public static String version() {
        return MADE_FROM.getProperty("version");
    }

    /** A digest of the sources that this kernel was compiled from. */
    public static String digest() {
        return MADE_FROM.getProperty("digest");
    }

    /**
     * Does nothing, if this is the kernel that is wanted.
     *
     * @param version the version that is wanted
     * @param digest its digest
     * @throws IllegalStateException it is another
     */
    public static void require(String version, String digest) {
        if (!digest.equals(digest())) {
            throw new IllegalStateException(
                    "this process has the Millstream kernel " + name(version(), digest())
                            + " on its class path, but the driver has " + name(version, digest)
                            + ": remove the jar from the cluster's class path; Millstream delivers its own");
        }
    }

    private static String name(String version, String digest) {
        return version + " (" + digest.substring(0, 12) + ")";
    }

    private static Properties read() {
        Properties properties = new Properties();
        // By the class, not by its loader: it is then the file of the very jar that the class is from.
        try (InputStream file = Kernel.class.getResourceAsStream("kernel.properties")) {
            if (file == null) {
                throw new IllegalStateException("the Millstream kernel was built without kernel.properties");
            }
            properties.load(file);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return properties;
    }
}
