package onceflow;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * The text of a parameter in the batch that is planned.
 *
 * <p>Spark folds constants whenever it plans a batch, on the driver, in the thread of the query. By
 * then, the offsets of the batch are in the log. So no executor ever sees this.
 */
public class ParameterValue extends Expression {
  private String name;
  private String unset;

  /**
   * Takes the parameter.
   *
   * @param unset its text in batches in which it is not set
   */
  public ParameterValue of(String name, String unset) {
    this.name = name;
    this.unset = unset;
    return this;
  }

  public boolean foldable() {
    return true;
  }

  public boolean nullable() {
    return false;
  }

  public DataType dataType() {
    return DataTypes.StringType;
  }

  public Object eval(InternalRow row) {
    String value = new Parameters().value(name);
    return UTF8String.fromString(value == null ? unset : value);
  }

  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    throw new UnsupportedOperationException("parameters are constants of a batch");
  }

  public Seq<Expression> children() {
    return (Seq) Nil$.MODULE$;
  }

  public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
    return this;
  }

  public int productArity() {
    return 1;
  }

  public Object productElement(int place) {
    return name;
  }

  public boolean canEqual(Object other) {
    return other instanceof ParameterValue;
  }

  public boolean equals(Object other) {
    return canEqual(other) && ((ParameterValue) other).name.equals(name);
  }

  public int hashCode() {
    return name.hashCode();
  }
}
