package onceflow.sink;

import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;

/**
 * One task of a batch that many write.
 *
 * <p>What Kafka refuses is the task's result, as a text, and not its failure: Spark would repeat
 * the task, and tell what became of the last attempt only.
 */
final class WriterTask implements FlatMapFunction {
  private final Assignment assignment;
  private final RecordColumns columns;

  WriterTask(Assignment assignment, RecordColumns columns) {
    this.assignment = assignment;
    this.columns = columns;
  }

  public Iterator call(Object rows) {
    if (assignment.isWriting()) {
      refuseRepetition();
    }
    try {
      return RowWriter.writeAll((Iterator) rows, assignment, columns).iterator();
    } catch (RefusedException refused) {
      return Collections.singletonList(refused.getMessage()).iterator();
    }
  }

  /**
   * What an earlier attempt has written into this transaction cannot be distinguished from what
   * this one would write.
   */
  private static void refuseRepetition() {
    TaskContext context = TaskContext.get();
    if (context.attemptNumber() > 0 || context.stageAttemptNumber() > 0) {
      throw new IllegalStateException("a task that writes is not repeated in its transaction");
    }
  }
}
