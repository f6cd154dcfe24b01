package onceflow.source;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import onceflow.decoders.Decoder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads the ranges of one task into columns that are used again for each batch. */
final class TaskReader implements PartitionReader {
  private static final int ROWS = 4096;

  /** Payloads of one batch, after which it is full. */
  private static final long BATCH_BYTES = 4L * 1024 * 1024;

  /** The end of the year 9999. What is later was written in another unit than milliseconds. */
  private static final long MAX_TIMESTAMP_MS = 253402300799999L;

  private static final String REJECT = "_reject";
  private static final String TICK = "_tick_at";
  private static final String META = " _key _topic _partition _offset _timestamp _value _headers ";

  private final Task task;
  private final String[] names;
  private final OnHeapColumnVector[] vectors;
  private final ColumnarBatch batch;

  /** Null if no column comes from payloads. */
  private final Decoder decoder;

  private final WritableColumnVector reject;
  private final Fetcher fetcher;
  private final long patienceMs;
  private boolean isTold = false;
  private int split = 0;
  private long at;
  private Chunk chunk = null;
  private int record = 0;
  private long bytes = 0;

  TaskReader(Reading reading, Task task) {
    this.task = task;
    patienceMs = reading.patienceMs;
    names = reading.schema.fieldNames();
    vectors = OnHeapColumnVector.allocateColumns(ROWS, reading.schema);
    batch = new ColumnarBatch(vectors);
    StructType payload = new StructType();
    List columns = new ArrayList();
    WritableColumnVector reasons = null;
    for (int column = 0; column < names.length; column++) {
      StructField field = reading.schema.fields()[column];
      if (names[column].equals(REJECT)) {
        reasons = vectors[column];
      } else if (!isMeta(names[column])) {
        payload = payload.add(field);
        columns.add(vectors[column]);
      }
    }
    reject = reasons;
    WritableColumnVector[] decoded =
        (WritableColumnVector[]) columns.toArray(new WritableColumnVector[0]);
    decoder =
        decoded.length == 0
            ? null
            : Decoder.of(reading.format, reading.formatOptions, payload, decoded);
    if (task.tick != null) {
      fetcher = null;
      return;
    }
    at = task.splits[0].start;
    fetcher = Fetcher.lease(reading, task.splits);
    boolean isThere = false;
    try {
      fetcher.goTo(task.splits);
      isThere = true;
    } finally {
      if (!isThere) {
        close();
      }
    }
  }

  public boolean next() {
    for (int column = 0; column < vectors.length; column++) {
      vectors[column].reset();
    }
    bytes = 0;
    int rows = task.tick == null ? read() : tick();
    batch.setNumRows(rows);
    return rows > 0;
  }

  public ColumnarBatch get() {
    return batch;
  }

  public void close() {
    if (fetcher != null) {
      fetcher.giveBack(task.splits);
    }
    batch.close();
  }

  private static boolean isMeta(String name) {
    return name.equals(TICK) || META.contains(" " + name + " ");
  }

  private int tick() {
    if (isTold) {
      return 0;
    }
    isTold = true;
    for (int column = 0; column < names.length; column++) {
      if (names[column].equals(TICK)) {
        vectors[column].putLong(0, task.tick.longValue());
      } else {
        vectors[column].putNull(0);
      }
    }
    return 1;
  }

  private int read() {
    int rows = 0;
    while (rows < ROWS && bytes < BATCH_BYTES) {
      while (split < task.splits.length && at >= task.splits[split].end) {
        split++;
        at = split < task.splits.length ? task.splits[split].start : at;
      }
      if (split == task.splits.length) {
        break;
      }
      if (chunk == null) {
        chunk = fetcher.take(task.splits[split], at, patienceMs);
        record = 0;
      }
      rows = copy(task.splits[split], rows);
    }
    return rows;
  }

  /** Copies records of the chunk, until it or its range ends, or the batch is full. */
  private int copy(Split range, int from) {
    int rows = from;
    List records = chunk.records;
    int size = records.size();
    while (record < size && rows < ROWS && bytes < BATCH_BYTES) {
      ConsumerRecord next = (ConsumerRecord) records.get(record);
      if (next.offset() >= range.end) {
        break;
      }
      if (next.offset() >= at) {
        write(range, next, rows);
        rows++;
      }
      record++;
    }
    if (record < size && ((ConsumerRecord) records.get(record)).offset() < range.end) {
      at = Math.max(at, ((ConsumerRecord) records.get(record)).offset());
      return rows;
    }
    if (chunk.next > range.end) {
      // Also if it holds no more records: what it decides would be fetched again.
      fetcher.putBack(range, chunk, range.end);
    }
    at = Math.min(chunk.next, range.end);
    chunk = null;
    return rows;
  }

  private void write(Split range, ConsumerRecord next, int row) {
    ByteBuffer value = (ByteBuffer) next.value();
    bytes += value == null ? 0 : value.remaining();
    for (int column = 0; column < names.length; column++) {
      if (isMeta(names[column])) {
        writeMeta(next, names[column], vectors[column], row);
      }
    }
    String reason = decoder == null ? null : decode(value, row);
    if (reject == null) {
      if (reason != null) {
        throw Troubles.badRecord(range, next.offset(), reason);
      }
    } else if (reason == null) {
      reject.putNull(row);
    } else {
      reject.putByteArray(row, reason.getBytes(StandardCharsets.UTF_8));
    }
  }

  private String decode(ByteBuffer value, int row) {
    if (value == null) {
      return decoder.decode(null, 0, 0, row);
    }
    int from = value.arrayOffset() + value.position();
    return decoder.decode(value.array(), from, from + value.remaining(), row);
  }

  private static void writeMeta(
      ConsumerRecord next, String name, WritableColumnVector vector, int row) {
    if (name.equals("_key")) {
      writeBytes((ByteBuffer) next.key(), vector, row);
    } else if (name.equals("_value")) {
      writeBytes((ByteBuffer) next.value(), vector, row);
    } else if (name.equals("_topic")) {
      vector.putByteArray(row, next.topic().getBytes(StandardCharsets.UTF_8));
    } else if (name.equals("_partition")) {
      vector.putInt(row, next.partition());
    } else if (name.equals("_offset")) {
      vector.putLong(row, next.offset());
    } else if (name.equals("_headers")) {
      writeHeaders(next.headers().toArray(), vector, row);
    } else if (name.equals("_timestamp")
        && next.timestamp() >= 0
        && next.timestamp() <= MAX_TIMESTAMP_MS) {
      vector.putLong(row, next.timestamp() * 1000);
    } else {
      vector.putNull(row);
    }
  }

  private static void writeBytes(ByteBuffer bytes, WritableColumnVector vector, int row) {
    if (bytes == null) {
      vector.putNull(row);
      return;
    }
    int from = bytes.arrayOffset() + bytes.position();
    vector.putByteArray(row, bytes.array(), from, bytes.remaining());
  }

  private static void writeHeaders(Header[] headers, WritableColumnVector vector, int row) {
    WritableColumnVector items = vector.arrayData();
    int start = items.getElementsAppended();
    for (int each = 0; each < headers.length; each++) {
      items.appendStruct(false);
      byte[] key = headers[each].key().getBytes(StandardCharsets.UTF_8);
      ((WritableColumnVector) items.getChild(0)).appendByteArray(key, 0, key.length);
      byte[] value = headers[each].value();
      if (value == null) {
        ((WritableColumnVector) items.getChild(1)).appendNull();
      } else {
        ((WritableColumnVector) items.getChild(1)).appendByteArray(value, 0, value.length);
      }
    }
    vector.putArray(row, start, headers.length);
  }
}
