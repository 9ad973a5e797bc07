package io.millstream.kernel.task;

import io.millstream.kernel.core.Folded;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;

/** A result as a row of Spark, which is used again when the next one is taken. Its columns are those of OWN. */
@SuppressWarnings("super")
final class ResultRow extends GenericInternalRow {
    private static final long serialVersionUID = 1;
    private static final int OWN = Operation.OWN.size();
    private static final int TAG = 0;
    private static final int KIND = 1;
    private static final int KEY = 2;
    private static final int START = 3;
    private static final int END = 4;
    private static final int AT = 5;
    private static final int TIME = 6;
    private static final int HEADERS = 7;

    private int tag;
    private int kind;
    private byte[] key;
    private long start;
    private long end;
    private long at;
    private long time;
    private boolean hasTime;
    byte[] headers;
    private final transient Object[] parts;

    ResultRow(int width) {
        super(new Object[width]);
        parts = new Object[width - OWN];
    }

    ResultRow of(int ofTag, int ofKind, byte[] ofKey, long from, long to, long when) {
        tag = ofTag;
        kind = ofKind;
        key = ofKey;
        start = from;
        end = to;
        at = when;
        hasTime = false;
        headers = null;
        Arrays.fill(parts, null);
        return this;
    }

    byte[] key() {
        return key;
    }

    void time(long value) {
        time = value;
        hasTime = true;
    }

    /** A column behind the own ones. */
    void put(int column, Object part) {
        parts[column - OWN] = part;
    }

    /** Folds are asked for only now, many at once. */
    ResultRow computed() {
        for (int i = 0; i < parts.length; i++) {
            if (parts[i] instanceof Folded folded) {
                parts[i] = folded.bytes();
            }
        }
        return this;
    }

    @Override
    public int numFields() {
        return OWN + parts.length;
    }

    @Override
    public Object genericGet(int column) {
        return switch (column) {
            case TAG -> tag;
            case KIND -> kind;
            case KEY -> key;
            case START -> start;
            case END -> end;
            case AT -> at;
            case TIME -> hasTime ? time : null;
            case HEADERS -> headers;
            default -> parts[column - OWN];
        };
    }

    @Override
    public boolean isNullAt(int column) {
        return switch (column) {
            case TAG, KIND, START, END, AT -> false;
            case KEY -> key == null;
            case TIME -> !hasTime;
            case HEADERS -> headers == null;
            default -> parts[column - OWN] == null;
        };
    }

    @Override
    public int getInt(int column) {
        return column == TAG ? tag : column == KIND ? kind : (Integer) parts[column - OWN];
    }

    @Override
    public long getLong(int column) {
        return switch (column) {
            case START -> start;
            case END -> end;
            case AT -> at;
            case TIME -> time;
            default -> (Long) parts[column - OWN];
        };
    }

    @Override
    public GenericInternalRow copy() {
        Object[] values = new Object[numFields()];
        for (int i = 0; i < values.length; i++) {
            values[i] = genericGet(i);
        }
        return new GenericInternalRow(values);
    }
}
