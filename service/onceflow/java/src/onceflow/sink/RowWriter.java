package onceflow.sink;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Numbers, digests and sends the rows of one task, which come partition by partition and in the
 * order of the batch.
 *
 * <p>A row is held back until the next one comes: only then is it known whether it is the last of
 * its partition.
 */
final class RowWriter {
  private static final int ROWS_BETWEEN_LOOKS = 1024;

  private final Assignment assignment;
  private final HeaderPacker headers;
  private final JoinedProducer producer;
  private final RowDigest digest = new RowDigest();
  private final List done = new ArrayList();
  private final boolean[] isDone;
  private boolean hasRow = false;
  private int partition = 0;
  private long count = 0;
  private byte[] key = null;
  private byte[] value = null;

  /** Takes a producer that has joined; null to write nothing. */
  RowWriter(Assignment assignment, JoinedProducer producer) {
    this.assignment = assignment;
    this.producer = producer;
    headers = new HeaderPacker(assignment.header);
    isDone = new boolean[assignment.nextSequences.length];
  }

  /**
   * Writes all rows, by a client that joins the transaction and leaves it; without rows, none does.
   *
   * @throws RefusedException Kafka did not take a record
   */
  static List writeAll(Iterator rows, Assignment assignment, RecordColumns columns) {
    boolean isWriting = assignment.isWriting() && rows.hasNext();
    JoinedProducer producer = isWriting ? IdleProducers.join(assignment) : null;
    boolean isDone = false;
    try {
      RowWriter writer = new RowWriter(assignment, producer);
      TaskContext task = TaskContext.get();
      for (long count = 1; rows.hasNext(); count++) {
        columns.write((InternalRow) rows.next(), writer);
        if (task != null && count % ROWS_BETWEEN_LOOKS == 0) {
          task.killTaskIfInterrupted();
        }
      }
      List written = writer.end();
      isDone = true;
      return written;
    } finally {
      if (isDone && producer != null) {
        IdleProducers.release(assignment, producer);
      } else if (producer != null) {
        producer.close();
      }
    }
  }

  void write(int of, byte[] newKey, byte[] newValue) {
    if (!hasRow || of != partition) {
      endPartition();
      begin(of);
    } else {
      send(false);
    }
    key = newKey;
    value = newValue;
    count++;
    digest.add(partition, key, value);
  }

  /** Returns what was written to each partition, all of it acknowledged. */
  List end() {
    endPartition();
    if (producer != null) {
      producer.leave();
    }
    return done;
  }

  private void begin(int of) {
    if (of < 0 || of >= isDone.length) {
      throw new IllegalStateException(
          "the query chose partition "
              + of
              + " of topic "
              + assignment.topic
              + ", which has "
              + isDone.length);
    }
    if (isDone[of]) {
      throw new IllegalStateException("rows of partition " + of + " come a second time");
    }
    partition = of;
    hasRow = true;
    count = 0;
  }

  private void endPartition() {
    if (hasRow) {
      send(true);
      done.add(new Written(partition, count, sequence(), digest.end()));
      isDone[partition] = true;
      hasRow = false;
    }
  }

  private long sequence() {
    return assignment.nextSequences[partition] + count - 1;
  }

  private void send(boolean isLast) {
    if (producer != null) {
      byte[] header = headers.pack(sequence(), isLast);
      producer.send(assignment.topic, partition, assignment.timestampMs, key, value, header);
    }
  }
}
