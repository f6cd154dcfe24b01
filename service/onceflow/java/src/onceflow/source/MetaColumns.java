package onceflow.source;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;

/** The columns that come from a record itself, not from its payload. */
final class MetaColumns {
  static final String TICK = "_tick_at";

  private static final int KEY = 0;
  private static final int VALUE = 1;
  private static final int TOPIC = 2;
  private static final int PARTITION = 3;
  private static final int OFFSET = 4;
  private static final int TIMESTAMP = 5;
  private static final int HEADERS = 6;
  private static final int TICK_AT = 7;

  private static final List NAMES =
      Arrays.asList(
          new Object[] {
            "_key", "_value", "_topic", "_partition", "_offset", "_timestamp", "_headers", TICK
          });

  /** The end of the year 9999. What is later was written in another unit than milliseconds. */
  private static final long MAX_TIMESTAMP_MS = 253402300799999L;

  private int[] kinds = new int[0];
  private final List vectors = new ArrayList();

  /** The topic of the record before, and its bytes. */
  private String topic = "";

  private byte[] topicBytes = new byte[0];

  static boolean has(String name) {
    return NAMES.contains(name);
  }

  void add(String name, WritableColumnVector vector) {
    kinds = Arrays.copyOf(kinds, kinds.length + 1);
    kinds[kinds.length - 1] = NAMES.indexOf(name);
    vectors.add(vector);
  }

  /** Writes a tick, which has event time and nothing else. */
  void writeTick(long eventTime, int row) {
    for (int column = 0; column < kinds.length; column++) {
      WritableColumnVector vector = (WritableColumnVector) vectors.get(column);
      if (kinds[column] == TICK_AT) {
        vector.putLong(row, eventTime);
      } else {
        vector.putNull(row);
      }
    }
  }

  /**
   * Writes the columns of a record.
   *
   * @return bytes of keys, values and headers that were copied
   */
  long write(ConsumerRecord next, int row) {
    long copied = 0;
    for (int column = 0; column < kinds.length; column++) {
      WritableColumnVector vector = (WritableColumnVector) vectors.get(column);
      switch (kinds[column]) {
        case KEY:
          copied += writeBytes((ByteBuffer) next.key(), vector, row);
          break;
        case VALUE:
          copied += writeBytes((ByteBuffer) next.value(), vector, row);
          break;
        case TOPIC:
          writeTopic(next.topic(), vector, row);
          break;
        case PARTITION:
          vector.putInt(row, next.partition());
          break;
        case OFFSET:
          vector.putLong(row, next.offset());
          break;
        case TIMESTAMP:
          writeTime(next.timestamp(), vector, row);
          break;
        case HEADERS:
          copied += writeHeaders(next.headers().toArray(), vector, row);
          break;
        default:
          vector.putNull(row);
      }
    }
    return copied;
  }

  private void writeTopic(String name, WritableColumnVector vector, int row) {
    if (!name.equals(topic)) {
      topic = name;
      topicBytes = name.getBytes(StandardCharsets.UTF_8);
    }
    vector.putByteArray(row, topicBytes, 0, topicBytes.length);
  }

  private static void writeTime(long timestampMs, WritableColumnVector vector, int row) {
    if (timestampMs >= 0 && timestampMs <= MAX_TIMESTAMP_MS) {
      vector.putLong(row, timestampMs * 1000);
    } else {
      vector.putNull(row);
    }
  }

  private static long writeBytes(ByteBuffer bytes, WritableColumnVector vector, int row) {
    if (bytes == null) {
      vector.putNull(row);
      return 0;
    }
    int from = bytes.arrayOffset() + bytes.position();
    vector.putByteArray(row, bytes.array(), from, bytes.remaining());
    return bytes.remaining();
  }

  private static long writeHeaders(Header[] headers, WritableColumnVector vector, int row) {
    WritableColumnVector items = vector.arrayData();
    int start = items.getElementsAppended();
    long copied = 0;
    for (int each = 0; each < headers.length; each++) {
      items.appendStruct(false);
      byte[] key = headers[each].key().getBytes(StandardCharsets.UTF_8);
      ((WritableColumnVector) items.getChild(0)).appendByteArray(key, 0, key.length);
      byte[] value = headers[each].value();
      if (value == null) {
        ((WritableColumnVector) items.getChild(1)).appendNull();
      } else {
        ((WritableColumnVector) items.getChild(1)).appendByteArray(value, 0, value.length);
        copied += value.length;
      }
    }
    vector.putArray(row, start, headers.length);
    return copied;
  }
}
