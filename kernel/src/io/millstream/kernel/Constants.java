package io.millstream.kernel;

/** What Python and the kernel share: `kernel/build.py` writes it from millstream/kernel/constants.py. */
public final class Constants {
    /** A row of an operator's output: a new value of a key. */
    public static final int KIND_UPDATE = 0;
    /** A row of an operator's output: a key has no value any more. */
    public static final int KIND_GONE = 1;
    /** A row of an operator's output: the final value of a window, or of what was held back. */
    public static final int KIND_CLOSED = 2;
    /** A row of an operator's output: a record that came too late. */
    public static final int KIND_LATE = 3;
    /** A row of an operator's output: what was held back is gone. */
    public static final int KIND_CLOSED_GONE = 4;
    /** In the column `time` of a table join's row: the left side has changed. */
    public static final int SIDE_LEFT = 0;
    /** In the column `time` of a table join's row: the right side has changed. */
    public static final int SIDE_RIGHT = 1;
    /** In the column `control` of a task's row: it was processed earlier; what follows from it is kept. */
    public static final int CONTROL_RESTORED = 2;
    /** To Python: the version of Python, and the pickled program, which is a function from frames to frames. */
    public static final byte MESSAGE_PROGRAM = 'P';
    /** To Python: frames for the program. */
    public static final byte MESSAGE_REQUEST = 'R';
    /** From Python: the frames that it returned. */
    public static final byte MESSAGE_ANSWER = 'A';
    /** From Python, at most once a second, before any of the others: it is still working, and makes progress. */
    public static final byte MESSAGE_ALIVE = 'B';
    /** From Python: the exception that it raised, as the text of a traceback. */
    public static final byte MESSAGE_ERROR = 'E';
    /** From Python, any number of times before it answers: frames for its caller, which replies. */
    public static final byte MESSAGE_QUESTION = 'Q';
    /** To Python: the reply to a question. */
    public static final byte MESSAGE_REPLY = 'Y';
    /** To Python: what its programs have kept is not needed any more. */
    public static final byte MESSAGE_CLOSE = 'C';
    /** A frame of a message: numbers of 32 bits. */
    public static final byte FRAME_INTS = 'i';
    /** A frame of a message: numbers of 64 bits. */
    public static final byte FRAME_LONGS = 'q';
    /** A frame of a message: byte strings, or nulls. */
    public static final byte FRAME_BYTES = 'y';
    /** A worker asks for the value of one key in a store. */
    public static final byte ASK_VALUE = 'g';
    /** A worker asks for the values of a store under the keys of its records. */
    public static final byte ASK_OWN_VALUE = 'o';
    /** A worker asks for a page of a range of a store. */
    public static final byte ASK_RANGE = 'r';
    /** A worker asks how many entries a store has. */
    public static final byte ASK_COUNT = 'c';
    /** In place of a record's input: a punctuation. */
    public static final int TICK = -1;
    /** In place of a record's input: the next rows in stores of transformers, for what follows from these. */
    public static final int TELL = -2;
    /** In place of a record's input: that of the first one, for a row that was processed earlier; and so on. */
    public static final int RESTORED = -3;
    /** In place of a size or a number: there is none. */
    public static final int NOTHING = -1;
    /** A fold's result is wanted at once. */
    public static final int FOLD_WANTED = 1;
    /** A fold's result is the beginning of a later fold. */
    public static final int FOLD_USED_AGAIN = 2;
    /** A handler's answer: the record is dropped. */
    public static final int ANSWER_CONTINUE = 0;
    /** A handler's answer: the task fails. */
    public static final int ANSWER_FAIL = 1;
    /** In place of a handler's answer: there is no handler for this. */
    public static final int ANSWER_NOT_ASKED = 2;
    /** In place of where a record failed: Kafka has refused it. */
    public static final int PLACE_REFUSED = -1;
    /** A metric of the Kafka source: the bytes that it has read. */
    public static final String METRIC_BYTES = "bytes";
    /** How the names of the sink's metrics of a topic begin. */
    public static final String METRIC_WRITTEN = "written:";
    /** The header of a changelog's record with what the value was merged from. */
    public static final String HEADER_PARTS = "millstream.parts";

    private Constants() {}
}
