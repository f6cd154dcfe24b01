package onceflow;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * A table of the pipeline file, without rows until a batch is planned.
 *
 * <p>Spark plans each batch of a query from one analysed plan. {@link ReferenceRule} then puts the
 * rows of the batch where this leaf was. Without the rule, there is no plan.
 */
public class ReferenceRelation extends LogicalPlan implements MultiInstanceRelation {
  private ReferenceRows rows;
  private Seq columns;

  /** For `of`. */
  public ReferenceRelation() {}

  /** For Spark, which copies a node by what it is made of. */
  public ReferenceRelation(ReferenceRows rows, Seq columns) {
    this.rows = rows;
    this.columns = columns;
  }

  /**
   * Takes the table.
   *
   * @param folder where its versions are kept, and the one of a query whose offsets name none
   */
  public ReferenceRelation of(String name, StructType schema, String folder, String unset) {
    rows = new ReferenceRows(name, schema, folder, unset);
    columns = DataTypeUtils$.MODULE$.toAttributes(schema);
    return this;
  }

  /** Returns a frame of the table, in a session that knows how to plan it from now on. */
  public Object open(Object session) {
    SparkSession opened = (SparkSession) session;
    new PlanRules().put(opened, new ReferenceRule());
    return Dataset$.MODULE$.ofRows(opened, this);
  }

  String name() {
    return rows.name();
  }

  ReferenceRows rows() {
    return rows;
  }

  public Seq output() {
    return columns;
  }

  /** As for each leaf of Spark: its columns are not looked for below it. */
  public AttributeSet producedAttributes() {
    return outputSet();
  }

  /** The same table, read a second time in one query. */
  public LogicalPlan newInstance() {
    List renewed = new ArrayList();
    for (Iterator each = columns.iterator(); each.hasNext(); ) {
      renewed.add(((Attribute) each.next()).newInstance());
    }
    return new ReferenceRelation(rows, LateRows.seq(renewed));
  }

  public Seq children() {
    return (Seq) Nil$.MODULE$;
  }

  public LogicalPlan withNewChildrenInternal(IndexedSeq children) {
    return this;
  }

  public int productArity() {
    return 2;
  }

  public Object productElement(int place) {
    return place == 0 ? rows : columns;
  }

  public boolean canEqual(Object other) {
    return other instanceof ReferenceRelation;
  }

  public boolean equals(Object other) {
    return this == other;
  }

  public int hashCode() {
    return rows.name().hashCode();
  }
}
