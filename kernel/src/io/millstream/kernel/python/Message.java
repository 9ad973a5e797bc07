package io.millstream.kernel.python;

import io.millstream.kernel.Constants;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * A message on the pipe between the JVM and a Python worker: a kind, and frames, each of which is a column of values.
 *
 * <pre>
 * message: int32 size of what follows | byte kind | int32 count of frames | frames
 * frame:   byte 'i' | int32 count | count x int32
 *          byte 'q' | int32 count | count x int64
 *          byte 'y' | int32 count | count x int32 size, -1 is null | the bytes, one after the other
 * </pre>
 *
 * Numbers are big-endian. The other end is millstream/spark/worker/program_worker.py. Frames are columns because
 * Python can unpack a whole column in one call.
 */
final class Message {
    private static final int MOST = 1 << 30;

    private final byte kind;
    private final List<Object> frames = new ArrayList<>();

    Message(byte kind) {
        this.kind = kind;
    }

    byte kind() {
        return kind;
    }

    Message add(int[] column) {
        frames.add(column);
        return this;
    }

    Message add(long[] column) {
        frames.add(column);
        return this;
    }

    Message add(byte[][] column) {
        frames.add(column);
        return this;
    }

    /** A column of numbers that the other end has sent. */
    int[] ints(int frame) throws IOException {
        return column(frame, int[].class);
    }

    /** Likewise. */
    long[] longs(int frame) throws IOException {
        return column(frame, long[].class);
    }

    /** A column of byte strings that the other end has sent. */
    byte[][] bytes(int frame) throws IOException {
        return column(frame, byte[][].class);
    }

    private <T> T column(int frame, Class<T> type) throws IOException {
        if (frame >= frames.size() || !type.isInstance(frames.get(frame))) {
            throw new IOException("a Python worker answered with frames of the wrong type");
        }
        return type.cast(frames.get(frame));
    }

    /** A column of byte strings that the other end has sent; its length is checked. */
    byte[][] bytes(int frame, int count) throws IOException {
        byte[][] column = bytes(frame);
        if (column.length != count) {
            throw new IOException("a Python worker answered with " + column.length + " values for " + count);
        }
        return column;
    }

    static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] text) {
        return new String(text, StandardCharsets.UTF_8);
    }

    void write(DataOutputStream out) throws IOException {
        int size = 5;
        for (Object frame : frames) {
            size = Math.addExact(size, size(frame));
        }
        ByteBuffer data = ByteBuffer.allocate(4 + size);
        data.putInt(size).put(kind).putInt(frames.size());
        for (Object frame : frames) {
            put(data, frame);
        }
        out.write(data.array());
        out.flush();
    }

    private static int size(Object frame) {
        if (frame instanceof int[] column) {
            return 5 + 4 * column.length;
        }
        if (frame instanceof long[] column) {
            return 5 + 8 * column.length;
        }
        byte[][] column = (byte[][]) frame;
        int size = 5 + 4 * column.length;
        for (byte[] item : column) {
            size = item == null ? size : Math.addExact(size, item.length);
        }
        return size;
    }

    private static void put(ByteBuffer data, Object frame) {
        if (frame instanceof int[] column) {
            data.put(Constants.FRAME_INTS).putInt(column.length);
            data.asIntBuffer().put(column);
            data.position(data.position() + 4 * column.length);
        } else if (frame instanceof long[] column) {
            data.put(Constants.FRAME_LONGS).putInt(column.length);
            data.asLongBuffer().put(column);
            data.position(data.position() + 8 * column.length);
        } else {
            byte[][] column = (byte[][]) frame;
            data.put(Constants.FRAME_BYTES).putInt(column.length);
            for (byte[] item : column) {
                data.putInt(item == null ? -1 : item.length);
            }
            for (byte[] item : column) {
                if (item != null) {
                    data.put(item);
                }
            }
        }
    }

    static Message read(DataInputStream in) throws IOException {
        int size = in.readInt();
        if (size < 5 || size > MOST) {
            throw new IOException("a Python worker sent " + size + " as the size of a message");
        }
        ByteBuffer data = ByteBuffer.wrap(new byte[size]);
        in.readFully(data.array());
        Message message = new Message(data.get());
        int count = data.getInt();
        for (int i = 0; i < count; i++) {
            message.frames.add(frame(data));
        }
        return message;
    }

    private static Object frame(ByteBuffer data) throws IOException {
        byte type = data.get();
        int count = data.getInt();
        switch (type) {
            case Constants.FRAME_INTS -> {
                int[] column = new int[count];
                data.asIntBuffer().get(column);
                data.position(data.position() + 4 * count);
                return column;
            }
            case Constants.FRAME_LONGS -> {
                long[] column = new long[count];
                data.asLongBuffer().get(column);
                data.position(data.position() + 8 * count);
                return column;
            }
            case Constants.FRAME_BYTES -> {
                int[] sizes = new int[count];
                data.asIntBuffer().get(sizes);
                data.position(data.position() + 4 * count);
                byte[][] column = new byte[count][];
                for (int i = 0; i < count; i++) {
                    if (sizes[i] >= 0) {
                        column[i] = new byte[sizes[i]];
                        data.get(column[i]);
                    }
                }
                return column;
            }
            default -> throw new IOException("a Python worker sent a frame of the unknown type " + type);
        }
    }
}
