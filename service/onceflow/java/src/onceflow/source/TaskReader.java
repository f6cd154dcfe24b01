package onceflow.source;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import onceflow.decoders.Decoder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads the ranges of one task into columns that are used again for each batch. */
final class TaskReader implements PartitionReader {
  private static final int ROWS = 4096;

  /** Bytes of keys, payloads and headers in one batch, after which it is full. */
  private static final long BATCH_BYTES = 4L * 1024 * 1024;

  private final Task task;
  private final OnHeapColumnVector[] vectors;
  private final ColumnarBatch batch;

  private final MetaColumns meta = new MetaColumns();

  /** The columns that come from payloads. */
  private final WritableColumnVector[] decoded;

  /** Null if there are none. */
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
    String[] names = reading.schema.fieldNames();
    vectors = OnHeapColumnVector.allocateColumns(ROWS, reading.schema);
    batch = new ColumnarBatch(vectors);
    List columns = new ArrayList();
    WritableColumnVector reasons = null;
    for (int column = 0; column < names.length; column++) {
      if (Reading.isDecoded(names[column])) {
        columns.add(vectors[column]);
      } else if (names[column].equals(Reading.REJECT)) {
        reasons = vectors[column];
      } else {
        meta.add(names[column], vectors[column]);
      }
    }
    reject = reasons;
    decoded = (WritableColumnVector[]) columns.toArray(new WritableColumnVector[0]);
    decoder = reading.decoder(decoded);
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

  private int tick() {
    if (isTold) {
      return 0;
    }
    isTold = true;
    meta.writeTick(task.tick.longValue(), 0);
    for (int column = 0; column < decoded.length; column++) {
      decoded[column].putNull(0);
    }
    if (reject != null) {
      reject.putNull(0);
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
    bytes += meta.write(next, row);
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
}
