package onceflow;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Mode;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.DeduplicateWithinWatermark;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import scala.collection.Iterator;
import scala.collection.Seq;

/** Describes an analysed plan, operators and expressions, as JSON. */
public class PlanReader {
  /**
   * Reads a plan in one call, where each look at a node from Python would be a round trip.
   *
   * @param viewOption option on the leaf of a stand-in that tells whose stand-in it is
   */
  public String read(LogicalPlan plan, String viewOption) throws Exception {
    return new ObjectMapper().writeValueAsString(node(plan, viewOption));
  }

  private Map node(LogicalPlan plan, String viewOption) {
    Map found = new LinkedHashMap();
    found.put("kind", kind(plan));
    found.put("is_streaming", Boolean.valueOf(plan.isStreaming()));
    if (plan instanceof Aggregate) {
      found.put("groupings", Integer.valueOf(((Aggregate) plan).groupingExpressions().size()));
    }
    if (plan instanceof Join) {
      found.put("join", ((Join) plan).joinType().sql());
    }
    if (plan instanceof DeduplicateWithinWatermark) {
      String source = SourceMark.source(plan.output());
      found.put("deduplicates", source == null ? "" : source);
    }
    if (plan instanceof StreamingRelationV2) {
      String view = ((StreamingRelationV2) plan).extraOptions().get(viewOption);
      found.put("view", view == null ? "" : view);
    }
    if (plan instanceof ReferenceRelation) {
      found.put("reference", ((ReferenceRelation) plan).name());
    }
    found.put("output", expressions(plan.output()));
    found.put("expressions", expressions(plan.expressions()));
    found.put("subqueries", nodes(plan.subqueries(), viewOption));
    found.put("children", nodes(plan.children(), viewOption));
    return found;
  }

  private List nodes(Seq plans, String viewOption) {
    List found = new ArrayList();
    for (Iterator each = plans.iterator(); each.hasNext(); ) {
      found.add(node((LogicalPlan) each.next(), viewOption));
    }
    return found;
  }

  private List expressions(Seq all) {
    List found = new ArrayList();
    for (Iterator each = all.iterator(); each.hasNext(); ) {
      found.add(expression((Expression) each.next()));
    }
    return found;
  }

  private Map expression(Expression expression) {
    Map found = new LinkedHashMap();
    found.put("kind", kind(expression));
    String name = expression.prettyName();
    if (expression instanceof NamedExpression && expression.resolved()) {
      found.put("id", Long.valueOf(((NamedExpression) expression).exprId().id()));
      name = ((NamedExpression) expression).name();
    } else if (expression instanceof PythonFuncExpression) {
      name = ((PythonFuncExpression) expression).name();
    }
    found.put("name", name);
    if (!expression.deterministic()) {
      found.put("is_deterministic", Boolean.FALSE);
    }
    found.put("type", type(expression));
    if (expression instanceof Mode) {
      found.put("is_ordered", Boolean.valueOf(((Mode) expression).reverseOpt().isDefined()));
    }
    if (!expression.children().isEmpty()) {
      found.put("children", expressions(expression.children()));
    }
    return found;
  }

  private String type(Expression expression) {
    try {
      return expression.dataType().simpleString();
    } catch (Exception error) { // not resolved, or without a type
      return "";
    }
  }

  private String kind(Object treeNode) {
    String name = treeNode.getClass().getSimpleName();
    return name.endsWith("$") ? name.substring(0, name.length() - 1) : name;
  }
}
