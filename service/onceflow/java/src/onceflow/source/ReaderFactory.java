package onceflow.source;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** Makes the readers of tasks. Sent to executors. */
final class ReaderFactory implements PartitionReaderFactory {
  private final Reading reading;

  ReaderFactory(Reading reading) {
    this.reading = reading;
  }

  public boolean supportColumnarReads(InputPartition task) {
    return true;
  }

  public PartitionReader createColumnarReader(InputPartition task) {
    return new TaskReader(reading, (Task) task);
  }

  public PartitionReader createReader(InputPartition task) {
    throw new UnsupportedOperationException("records are read as columns");
  }
}
