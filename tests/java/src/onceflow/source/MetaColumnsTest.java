package onceflow.source;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

class MetaColumnsTest {
  private static final String DDL =
      "_offset BIGINT, _topic STRING, _timestamp TIMESTAMP, _key BINARY, _value BINARY,"
          + " _headers ARRAY<STRUCT<key: STRING, value: BINARY>>, _tick_at TIMESTAMP";

  private final OnHeapColumnVector[] vectors =
      OnHeapColumnVector.allocateColumns(4, StructType.fromDDL(DDL));
  private final MetaColumns columns = new MetaColumns();

  MetaColumnsTest() {
    String[] names = StructType.fromDDL(DDL).fieldNames();
    for (int at = 0; at < names.length; at++) {
      columns.add(names[at], vectors[at]);
    }
  }

  private static ConsumerRecord<ByteBuffer, ByteBuffer> record(
      String topic, long timestamp, ByteBuffer key) {
    RecordHeaders headers = new RecordHeaders();
    headers.add("h", new byte[] {1, 2, 3});
    headers.add("none", null);
    return new ConsumerRecord<>(
        topic,
        0,
        7,
        timestamp,
        TimestampType.CREATE_TIME,
        0,
        0,
        key,
        null,
        headers,
        Optional.empty());
  }

  private static ByteBuffer inside(String text) {
    ByteBuffer whole = ByteBuffer.wrap(("??" + text + "?").getBytes(StandardCharsets.UTF_8));
    whole.position(2).limit(2 + text.length());
    return whole.slice();
  }

  @Test
  void copiesWhatTheRecordHas() {
    assertEquals(2 + 3, columns.write(record("a", 5, inside("ky")), 0));

    assertEquals(7, vectors[0].getLong(0));
    assertEquals(5000, vectors[2].getLong(0));
    assertArrayEquals("ky".getBytes(StandardCharsets.UTF_8), vectors[3].getBinary(0));
    assertTrue(vectors[4].isNullAt(0));
    assertTrue(vectors[6].isNullAt(0));
    assertEquals(2, vectors[5].getArray(0).numElements());
    assertEquals("h", vectors[5].getArray(0).getStruct(0, 2).getUTF8String(0).toString());
    assertTrue(vectors[5].getArray(0).getStruct(1, 2).isNullAt(1));
  }

  @Test
  void recordsOfSeveralTopicsKeepTheirNames() {
    columns.write(record("a", 5, null), 0);
    columns.write(record("bb", 5, null), 1);
    columns.write(record("bb", 5, null), 2);
    columns.write(record("a", 5, null), 3);

    String found = "";
    for (int row = 0; row < 4; row++) {
      found += vectors[1].getUTF8String(row) + " ";
    }
    assertEquals("a bb bb a ", found);
  }

  @Test
  void timesOutsideOfWhatATimestampHoldsAreNull() {
    columns.write(record("a", -1, null), 0);
    columns.write(record("a", 253402300799999L, null), 1);
    columns.write(record("a", 253402300800000L, null), 2);

    assertTrue(vectors[2].isNullAt(0));
    assertEquals(253402300799999000L, vectors[2].getLong(1));
    assertTrue(vectors[2].isNullAt(2));
  }

  @Test
  void aTickHasEventTimeOnly() {
    columns.writeTick(42, 0);

    assertEquals(42, vectors[6].getLong(0));
    for (int at = 0; at < 6; at++) {
      assertTrue(vectors[at].isNullAt(0));
    }
  }
}
