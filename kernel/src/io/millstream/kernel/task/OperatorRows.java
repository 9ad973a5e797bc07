package io.millstream.kernel.task;

import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** The rows of an operator: for each that comes in its results, and then the row itself. */
final class OperatorRows extends AbstractIterator<InternalRow> {
    private final Operation.Spec spec;
    private final StoredValues stored;
    private final Iterator<InternalRow> rows;
    private Operation operation;
    /** What came in last, and has still to go on. */
    private InternalRow in;

    private InternalRow next;

    OperatorRows(Operation.Spec spec, StoredValues stored, Iterator<InternalRow> rows) {
        this.spec = spec;
        this.stored = stored;
        this.rows = rows;
    }

    @Override
    public boolean hasNext() {
        while (next == null) {
            if (in != null) {
                next = operation.result();
                if (next == null) {
                    next = operation.passed(in);
                    in = null;
                }
            } else if (rows.hasNext()) {
                in = rows.next();
                if (operation == null) { // not before the source has its task
                    operation = Operation.of(spec, stored);
                }
                operation.process(in);
            } else {
                return false;
            }
        }
        return true;
    }

    @Override
    public InternalRow next() {
        if (!hasNext()) {
            throw new java.util.NoSuchElementException();
        }
        InternalRow found = next;
        next = null;
        return found;
    }
}
