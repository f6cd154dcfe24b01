package onceflow;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.Iterator;

/** Gives Spark's optimizer rules of our own, which it runs after its own. */
public class PlanRules {
  /** Adds a rule to those of a session, or replaces the one of its class. */
  public void put(SparkSession session, Rule rule) {
    List rules = new ArrayList();
    Iterator before = session.experimental().extraOptimizations().iterator();
    while (before.hasNext()) {
      Object each = before.next();
      if (each.getClass() != rule.getClass()) {
        rules.add(each);
      }
    }
    rules.add(rule);
    session.experimental().extraOptimizations_$eq(LateRows.seq(rules));
  }
}
