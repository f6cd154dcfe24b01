package onceflow;

import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import scala.collection.Seq;
import scala.runtime.AbstractFunction1;

/** Finds the expression that `parameter('name')` stands for, of another type for each name. */
public class ParameterFunction extends AbstractFunction1 {
  private Map expressions;

  /**
   * Takes the parameters.
   *
   * @param byName name to expression, which Spark resolves
   */
  public ParameterFunction of(Map byName) {
    expressions = byName;
    return this;
  }

  public Object apply(Object arguments) {
    Expression name = (Expression) ((Seq) arguments).head();
    Object found = expressions.get(String.valueOf(name.eval(null)));
    if (found == null) {
      throw new IllegalArgumentException("the pipeline declares no parameter " + name);
    }
    return found;
  }
}
