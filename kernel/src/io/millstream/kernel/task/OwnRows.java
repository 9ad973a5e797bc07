package io.millstream.kernel.task;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.NumericType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Has a Python function in a column called with the rows of its stream alone. Spark calls it with all rows, whatever
 * the condition around it, and a task has rows of other streams, and some that are no records.
 */
final class OwnRows {
    /** In Python: makes a function of one that Spark has pickled, and its kind; see that module. */
    private static final String IN_PYTHON = "cmillstream.spark.worker.own_rows\nfor_own_rows\n";

    private OwnRows() {}

    /**
     * The column, with functions that are told which rows are theirs, by a further argument in front.
     *
     * @param selected the plan of the one column, from an outline
     * @param control the name of the column that is 0 in records
     * @return null if there is no Python function in it
     */
    static Column of(LogicalPlan selected, String control) {
        Expression column = (Expression) CollectionConverters.asJava(((Project) selected).projectList()).get(0);
        column = column instanceof Alias alias ? alias.child() : column;
        if (!hasFunction(column)) {
            return null;
        }
        Expression isRecord = new EqualTo(UnresolvedAttribute.quoted(control), Literal$.MODULE$.apply(0));
        return ExpressionUtils.column(told(column, isRecord));
    }

    private static boolean hasFunction(Expression expression) {
        return expression instanceof PythonUDF
                || CollectionConverters.asJava(expression.children()).stream().anyMatch(OwnRows::hasFunction);
    }

    /** @param isOwn whether a row is of the stream that the expression is computed for */
    private static Expression told(Expression expression, Expression isOwn) {
        if (expression instanceof AttributeReference column) {
            return UnresolvedAttribute.quoted(column.name()); // of a frame with the same names
        }
        Expression within = isOwn;
        if (expression instanceof CaseWhen choice
                && CollectionConverters.asJava(choice.branches()).get(0)._1() instanceof AttributeReference flag) {
            within = UnresolvedAttribute.quoted(flag.name());
        }
        List<Expression> children = new ArrayList<>();
        for (Expression child : CollectionConverters.asJava(expression.children())) {
            Expression found = told(child, within);
            children.add(expression instanceof PythonUDF ? filled(child, found, isOwn) : found);
        }
        if (expression instanceof PythonUDF function) {
            children.add(0, isOwn);
            return new PythonUDF(
                    function.name(),
                    forOwnRows(function.func(), function.evalType()),
                    function.dataType(),
                    OperatorNode.seq(children),
                    function.evalType(),
                    function.udfDeterministic(),
                    function.resultId());
        }
        return (Expression) expression.withNewChildren(OperatorNode.seq(children));
    }

    /** An argument without nulls of other rows: with these, pandas would take whole numbers for floats. */
    private static Expression filled(Expression typed, Expression argument, Expression isOwn) {
        if (typed instanceof NamedArgumentExpression named) {
            Expression value = ((NamedArgumentExpression) argument).value();
            return new NamedArgumentExpression(named.key(), filled(named.value(), value, isOwn));
        }
        DataType type = typed.dataType();
        if (!(type instanceof NumericType || type instanceof BooleanType)) {
            return argument;
        }
        Expression any = Literal$.MODULE$.apply(type instanceof BooleanType ? (Object) false : 0);
        return new If(isOwn, argument, Cast$.MODULE$.apply(any, type, false));
    }

    private static PythonFunction forOwnRows(PythonFunction function, int kind) {
        return new SimplePythonFunction(
                pickled(bytes(function.command()), kind),
                function.envVars(),
                function.pythonIncludes(),
                function.pythonExec(),
                function.pythonVer(),
                function.broadcastVars(),
                function.accumulator());
    }

    private static byte[] bytes(Seq<Object> all) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        CollectionConverters.asJava(all).forEach(each -> bytes.write((Byte) each));
        return bytes.toByteArray();
    }

    /** A call of the function in Python: what Spark's worker gets when it unpickles this. */
    private static byte[] pickled(byte[] function, int kind) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.write(new byte[] {(byte) 0x80, 3});
            out.write(IN_PYTHON.getBytes(StandardCharsets.US_ASCII));
            out.write('B');
            out.writeInt(Integer.reverseBytes(function.length));
            out.write(function);
            out.write(new byte[] {'K', (byte) kind, (byte) 0x86, 'R', '.'}); // with both in a tuple, called
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }
}
