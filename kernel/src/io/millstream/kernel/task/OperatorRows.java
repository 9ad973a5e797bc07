package io.millstream.kernel.task;

import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** The rows of an operator. */
final class OperatorRows extends AbstractIterator<InternalRow> {
    private final Operator.Spec spec;
    private final StoredValues stored;
    private final Iterator<InternalRow> rows;
    private Operator operator;
    private InternalRow next;

    OperatorRows(Operator.Spec spec, StoredValues stored, Iterator<InternalRow> rows) {
        this.spec = spec;
        this.stored = stored;
        this.rows = rows;
    }

    @Override
    public boolean hasNext() {
        while (next == null) {
            next = operator == null ? null : operator.next();
            if (next == null) {
                if (!rows.hasNext()) {
                    return false;
                }
                InternalRow row = rows.next();
                if (operator == null) { // not before the source has its task
                    operator = Operator.of(spec, stored);
                }
                operator.process(row);
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
