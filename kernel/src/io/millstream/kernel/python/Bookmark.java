package io.millstream.kernel.python;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * Which record of a chunk a worker is processing, in four bytes of a file that both have open. So it is known even if
 * the worker has ended. The file's name is deleted as soon as the worker has opened it.
 */
final class Bookmark {
    private Path path;
    private final FileChannel file;

    Bookmark() throws IOException {
        path = Files.createTempFile("millstream-", ".place");
        Files.write(path, new byte[Integer.BYTES]);
        file = FileChannel.open(path, StandardOpenOption.READ);
    }

    /** The name of the file; empty once the worker has opened it. */
    String name() {
        return path == null ? "" : path.toString();
    }

    void isOpen() throws IOException {
        if (path != null) {
            Files.delete(path);
            path = null;
        }
    }

    int read() throws IOException {
        ByteBuffer number = ByteBuffer.allocate(Integer.BYTES);
        file.read(number, 0);
        return number.getInt(0);
    }
}
