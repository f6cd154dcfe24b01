package onceflow;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/**
 * Gives references the rows of the batch that is planned.
 *
 * <p>Spark runs it after its own rules, so that no operator is left out of a plan because a table
 * has no rows: state would go with it.
 */
public class ReferenceRule extends Rule {
  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).transformUpWithSubqueries(new Filling());
  }

  /** Puts rows where a leaf was. */
  public static class Filling extends AbstractPartialFunction {
    public boolean isDefinedAt(Object plan) {
      return plan instanceof ReferenceRelation;
    }

    public Object applyOrElse(Object plan, Function1 otherwise) {
      if (!isDefinedAt(plan)) {
        return otherwise.apply(plan);
      }
      ReferenceRelation table = (ReferenceRelation) plan;
      return table.rows().ofBatch(table.output());
    }
  }
}
