package onceflow.sink;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Descending$;
import org.apache.spark.sql.catalyst.expressions.SortDirection;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.SQLExecution$;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/** The rows of a small batch in the driver's memory: no plan of its own, no shuffle, no task. */
public final class CollectedRows implements BatchRows {
  private final RecordColumns columns;
  private InternalRow[] rows;

  /**
   * Runs the query, and sorts by these columns; a descending one is exactly reversed. Rows that are
   * equal stay in the order of the tasks that made them.
   */
  public CollectedRows(
      org.apache.spark.sql.Dataset frame, String[] names, boolean[] areDescending) {
    Dataset query = (Dataset) frame;
    columns = new RecordColumns(query.schema());
    Collection job = new Collection(query);
    rows =
        (InternalRow[])
            SQLExecution$.MODULE$.withNewExecutionId(
                query.queryExecution(), Option.apply("collect batch"), job);
    Arrays.sort(rows, order(query, names, areDescending));
  }

  public Written[] write(Assignment assignment) {
    List written = RowWriter.writeAll(Arrays.asList(rows).iterator(), assignment, columns);
    return (Written[]) written.toArray(new Written[0]);
  }

  public void close() {
    rows = new InternalRow[0];
  }

  private static LazilyGeneratedOrdering order(
      Dataset query, String[] names, boolean[] areDescending) {
    List terms = new ArrayList();
    Seq attributes = query.queryExecution().analyzed().output();
    for (int at = 0; at < names.length; at++) {
      SortDirection direction =
          areDescending[at] ? (SortDirection) Descending$.MODULE$ : Ascending$.MODULE$;
      Attribute attribute = (Attribute) attributes.apply(query.schema().fieldIndex(names[at]));
      Seq same = CollectionConverters.asScala(new ArrayList()).toSeq();
      terms.add(new SortOrder(attribute, direction, direction.defaultNullOrdering(), same));
    }
    return new LazilyGeneratedOrdering(CollectionConverters.asScala(terms).toSeq(), attributes);
  }

  /** Runs as an execution of Spark SQL, whose metrics would be lost otherwise. */
  private static final class Collection extends AbstractFunction0 {
    private final Dataset query;

    Collection(Dataset query) {
      this.query = query;
    }

    public Object apply() {
      return query.queryExecution().executedPlan().executeCollect();
    }
  }
}
