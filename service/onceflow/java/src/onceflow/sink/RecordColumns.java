package onceflow.sink;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/** Where the rows of a batch have partition, key and value; other columns are not written. */
final class RecordColumns implements Serializable {
  private final int partition;
  private final int key;
  private final int value;

  RecordColumns(StructType schema) {
    partition = schema.fieldIndex("__partition");
    key = schema.fieldIndex("__key");
    value = schema.fieldIndex("__value");
  }

  void write(InternalRow row, RowWriter writer) {
    if (row.isNullAt(partition)) {
      throw new IllegalStateException("the query chose no partition for a row");
    }
    writer.write(
        row.getInt(partition),
        row.isNullAt(key) ? null : row.getBinary(key),
        row.isNullAt(value) ? null : row.getBinary(value));
  }
}
