package onceflow;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.Iterator;
import scala.collection.mutable.ListBuffer;

/** Counts the rows of each task above every step that makes several of one. */
public class RowGuard extends Rule {
  private Expression condition;

  /**
   * Takes the condition from a plan, which Spark has resolved.
   *
   * @param example a filter by it; the condition fails when it has seen too many rows.
   */
  public RowGuard with(LogicalPlan example) {
    condition = ((Filter) example).condition();
    return this;
  }

  public TreeNode apply(TreeNode plan) {
    return guarded((LogicalPlan) plan, false);
  }

  private LogicalPlan guarded(LogicalPlan plan, boolean isBelowGuard) {
    boolean isGuard = plan instanceof Filter && ((Filter) plan).condition() == condition;
    ListBuffer children = new ListBuffer();
    boolean isChanged = false;
    for (Iterator each = plan.children().iterator(); each.hasNext(); ) {
      LogicalPlan before = (LogicalPlan) each.next();
      LogicalPlan after = guarded(before, isGuard);
      isChanged |= before != after;
      children.addOne(after);
    }
    LogicalPlan found = isChanged ? (LogicalPlan) plan.withNewChildren(children.toSeq()) : plan;
    return makesMore(found) && !isBelowGuard ? new Filter(condition, found) : found;
  }

  private boolean makesMore(LogicalPlan plan) {
    if (plan instanceof Join) {
      Object type = ((Join) plan).joinType();
      return type != LeftSemi$.MODULE$ && type != LeftAnti$.MODULE$;
    }
    return plan instanceof Generate || plan instanceof Expand;
  }
}
