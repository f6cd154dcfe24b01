package onceflow.sink;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.SQLExecution$;
import scala.Option;
import scala.runtime.AbstractFunction0;

/**
 * Rows that a plan has shuffled, so that one task has all of an output partition, and sorted. What
 * was shuffled stays until the end, and is written again without the query.
 */
public final class ShuffledRows implements BatchRows {
  private final Dataset frame;
  private final RecordColumns columns;
  private RDD rows = null;

  public ShuffledRows(org.apache.spark.sql.Dataset frame) {
    this.frame = (Dataset) frame;
    columns = new RecordColumns(frame.schema());
  }

  public Written[] write(Assignment assignment) {
    List reports =
        (List)
            SQLExecution$.MODULE$.withNewExecutionId(
                frame.queryExecution(), Option.apply("write batch"), new Job(this, assignment));
    Set partitions = new HashSet();
    for (int at = 0; at < reports.size(); at++) {
      if (reports.get(at) instanceof String) {
        throw new RefusedException((String) reports.get(at));
      }
      if (!partitions.add(Integer.valueOf(((Written) reports.get(at)).partition()))) {
        throw new IllegalStateException("two tasks have written to one partition");
      }
    }
    return (Written[]) reports.toArray(new Written[0]);
  }

  public void close() {
    if (rows != null) {
      rows.cleanShuffleDependencies(false);
    }
  }

  private List run(Assignment assignment) {
    if (rows == null) {
      rows = frame.queryExecution().toRdd();
    }
    return rows.toJavaRDD().mapPartitions(new WriterTask(assignment, columns)).collect();
  }

  /** Runs as an execution of Spark SQL, whose metrics would be lost otherwise. */
  private static final class Job extends AbstractFunction0 {
    private final ShuffledRows rows;
    private final Assignment assignment;

    Job(ShuffledRows rows, Assignment assignment) {
      this.rows = rows;
      this.assignment = assignment;
    }

    public Object apply() {
      return rows.run(assignment);
    }
  }
}
