package onceflow;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDAF;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * Takes the aggregates in Python out of a plan, one GROUP BY at a time, so that they can be
 * computed by other operators; `onceflow.pipeline.query.aggregates`.
 */
public class AggregateCalls {
  private Aggregate aggregate;
  private List calls;
  private List others;

  /** Looks for a GROUP BY with calls, the lowest first. */
  public boolean find(LogicalPlan plan) {
    if (findIn(plan.children()) || findIn(plan.subqueries())) {
      return true;
    }
    if (!(plan instanceof Aggregate)) {
      return false;
    }
    aggregate = (Aggregate) plan;
    calls = new ArrayList();
    others = new ArrayList();
    for (Iterator each = aggregate.aggregateExpressions().iterator(); each.hasNext(); ) {
      collect((Expression) each.next());
    }
    return !calls.isEmpty();
  }

  private boolean findIn(Seq plans) {
    for (Iterator each = plans.iterator(); each.hasNext(); ) {
      if (find((LogicalPlan) each.next())) {
        return true;
      }
    }
    return false;
  }

  private void collect(Expression expression) {
    if (expression instanceof AggregateExpression) {
      AggregateExpression call = (AggregateExpression) expression;
      if (!(call.aggregateFunction() instanceof PythonUDAF)) {
        others.add(call.aggregateFunction().prettyName());
      } else if (place(call, calls) < 0) {
        calls.add(call);
      }
      return;
    }
    for (Iterator each = expression.children().iterator(); each.hasNext(); ) {
      collect((Expression) each.next());
    }
  }

  private static int place(Expression expression, List among) {
    for (int at = 0; at < among.size(); at++) {
      if (expression.semanticEquals((Expression) among.get(at))) {
        return at;
      }
    }
    return -1;
  }

  /** The calls, each once, the texts of what is grouped by, and the names of other aggregates. */
  public String describe() throws Exception {
    List described = new ArrayList();
    for (int at = 0; at < calls.size(); at++) {
      AggregateExpression call = (AggregateExpression) calls.get(at);
      Map told = new LinkedHashMap();
      told.put("name", ((PythonUDAF) call.aggregateFunction()).name());
      told.put("arguments", Integer.valueOf(call.aggregateFunction().children().size()));
      boolean isPlain = !call.isDistinct() && call.filter().isEmpty();
      told.put("is_plain", Boolean.valueOf(isPlain));
      described.add(told);
    }
    List groupings = new ArrayList();
    for (Iterator each = aggregate.groupingExpressions().iterator(); each.hasNext(); ) {
      groupings.add(((Expression) each.next()).sql());
    }
    Map found = new LinkedHashMap();
    found.put("calls", described);
    found.put("groupings", groupings);
    found.put("others", others);
    return new ObjectMapper().writeValueAsString(found);
  }

  /** Rows that go in: what is grouped by as `k0` and so on, and arguments as `a0_0` and so on. */
  public Object inputs(Object session) {
    List columns = new ArrayList();
    int keys = 0;
    for (Iterator each = aggregate.groupingExpressions().iterator(); each.hasNext(); ) {
      columns.add(LateRows.alias((Expression) each.next(), "k" + keys++, null));
    }
    for (int at = 0; at < calls.size(); at++) {
      int arguments = 0;
      AggregateExpression call = (AggregateExpression) calls.get(at);
      Iterator each = call.aggregateFunction().children().iterator();
      while (each.hasNext()) {
        columns.add(LateRows.alias((Expression) each.next(), "a" + at + "_" + arguments++, null));
      }
    }
    LogicalPlan rows = new Project(LateRows.seq(columns), aggregate.child());
    return Dataset$.MODULE$.ofRows((SparkSession) session, rows);
  }

  /**
   * The plan with other rows in place of the GROUP BY.
   *
   * @param made has what is grouped by as `k0` and so on, and results as `r0` and so on
   */
  public Object replaced(Object session, LogicalPlan plan, LogicalPlan made) {
    List columns = new ArrayList();
    for (Iterator each = aggregate.aggregateExpressions().iterator(); each.hasNext(); ) {
      NamedExpression before = (NamedExpression) each.next();
      Expression after = rewritten((Expression) before, made);
      if (!(after instanceof Alias)) {
        after = LateRows.alias(after, before.name(), before.toAttribute());
      }
      columns.add(after);
    }
    LogicalPlan project = new Project(LateRows.seq(columns), made);
    Object replaced = plan.transformUpWithSubqueries(new Replacement(aggregate, project));
    return Dataset$.MODULE$.ofRows((SparkSession) session, (LogicalPlan) replaced);
  }

  private Expression rewritten(Expression expression, LogicalPlan made) {
    int keys = 0;
    for (Iterator each = aggregate.groupingExpressions().iterator(); each.hasNext(); keys++) {
      if (expression.semanticEquals((Expression) each.next())) {
        return LateRows.named(made.output(), "k" + keys);
      }
    }
    int call = place(expression, calls);
    if (call >= 0) {
      return LateRows.named(made.output(), "r" + call);
    }
    if (expression.children().isEmpty()) {
      return expression;
    }
    List children = new ArrayList();
    for (Iterator each = expression.children().iterator(); each.hasNext(); ) {
      children.add(rewritten((Expression) each.next(), made));
    }
    return (Expression) expression.withNewChildren(LateRows.seq(children));
  }

  /** Puts one operator instead of another. */
  public static class Replacement extends AbstractPartialFunction {
    private final LogicalPlan before;
    private final LogicalPlan after;

    public Replacement(LogicalPlan before, LogicalPlan after) {
      this.before = before;
      this.after = after;
    }

    public boolean isDefinedAt(Object plan) {
      return plan == before;
    }

    public Object applyOrElse(Object plan, Function1 otherwise) {
      return isDefinedAt(plan) ? after : otherwise.apply(plan);
    }
  }
}
