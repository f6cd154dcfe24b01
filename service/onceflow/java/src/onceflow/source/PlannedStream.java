package onceflow.source;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** A stream of batches that Python plans. */
final class PlannedStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final Plan plan;
  private final PartitionReaderFactory readers;

  PlannedStream(Plan plan, PartitionReaderFactory readers) {
    this.plan = plan;
    this.readers = readers;
  }

  public Offset initialOffset() {
    return new Text(plan.initialOffset());
  }

  public ReadLimit getDefaultReadLimit() {
    Object[] limit = {Long.valueOf(plan.limit())};
    try {
      // Janino cannot call a static method of an interface.
      return (ReadLimit) ReadLimit.class.getMethod("maxRows", long.class).invoke(null, limit);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  public Offset latestOffset(Offset start, ReadLimit limit) {
    return new Text(plan.latestOffset(start.json(), rows(limit)));
  }

  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with a limit");
  }

  public Offset deserializeOffset(String json) {
    return new Text(json);
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return Task.all(plan.tasks(start.json(), end.json()));
  }

  public PartitionReaderFactory createReaderFactory() {
    return readers;
  }

  public void prepareForTriggerAvailableNow() {
    plan.freeze();
  }

  public void commit(Offset end) {
    plan.commit(end.json());
  }

  public void stop() {
    plan.stop();
  }

  /** Spark may ask for everything although a limit was given. */
  private static long rows(ReadLimit limit) {
    if (limit instanceof ReadMaxRows) {
      return ((ReadMaxRows) limit).maxRows();
    }
    if (limit instanceof ReadAllAvailable) {
      return -1;
    }
    throw new SourceException(
        "InvariantError", "Spark asks for a limit that was not offered; found " + limit);
  }

  /** An offset as Python wrote it. Spark compares and logs the text. */
  private static final class Text extends Offset {
    private final String json;

    Text(String json) {
      this.json = json;
    }

    public String json() {
      return json;
    }
  }
}
