package onceflow.decoders;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

/** What one decoder does with many records; `test_java_avro.py` shows what it makes of each. */
class AvroDecoderTest {
  private OnHeapColumnVector[] columns;

  private Decoder decoder(String ddl, String fields) {
    StructType schema = StructType.fromDDL(ddl);
    columns = OnHeapColumnVector.allocateColumns(4, schema);
    String record = "{\"type\": \"record\", \"name\": \"r\", \"fields\": [" + fields + "]}";
    String options = "{\"schema\": \"" + record.replace("\"", "\\\"") + "\"}";
    return Decoder.of("avro", options, schema, columns);
  }

  private static String field(String name, String type) {
    return "{\"name\": \"" + name + "\", \"type\": " + type + "}";
  }

  private static String decode(Decoder decoder, int row, int... payload) {
    byte[] bytes = new byte[payload.length + 3];
    for (int at = 0; at < payload.length; at++) {
      bytes[2 + at] = (byte) payload[at];
    }
    return decoder.decode(bytes, 2, bytes.length - 1, row);
  }

  @Test
  void columnsAreUsedAgain() {
    Decoder decoder =
        decoder(
            "x ARRAY<STRING>, y BIGINT, z STRING",
            field("y", "[\"null\", \"long\"]")
                + ", "
                + field("x", "{\"type\": \"array\", \"items\": \"string\"}"));
    for (int batch = 0; batch < 3; batch++) {
      assertNull(decode(decoder, 0, 2, 8, 4, 2, 'a', 0, 0));
      assertEquals("not a datum of the schema: EOFError", decode(decoder, 1, 2, 8, 4, 2, 'a'));
      assertNull(decode(decoder, 2, 0, 2, 2, 'b', 0));

      assertEquals("a", columns[0].getArray(0).getUTF8String(0).toString());
      assertEquals(4, columns[1].getLong(0));
      assertTrue(columns[0].isNullAt(1));
      assertTrue(columns[1].isNullAt(1));
      assertEquals("b", columns[0].getArray(2).getUTF8String(0).toString());
      assertTrue(columns[1].isNullAt(2));
      assertTrue(columns[2].isNullAt(0));
      for (OnHeapColumnVector column : columns) {
        column.reset();
      }
    }
  }

  @Test
  void aRecordMayHoldItself() {
    String node = "{\"type\": \"record\", \"name\": \"n.node\", \"fields\": [%s, %s]}";
    String fields =
        String.format(node, field("value", "\"int\""), field("next", "[\"null\", \"node\"]"));
    Decoder decoder =
        decoder("y STRUCT<value: INT>, z INT", field("y", fields) + ", " + field("z", "\"int\""));

    assertNull(decode(decoder, 0, 2, 2, 4, 2, 6, 0, 8));

    assertEquals(1, columns[0].getStruct(0).getInt(0));
    assertEquals(4, columns[1].getInt(0));
  }

  @Test
  void schemasThatSayNothingAreRefused() {
    String[] wrong = {
      field("a", "\"thing\""),
      field("a", "7"),
      field("a", "{\"type\": \"array\"}"),
      field("a", "{\"type\": \"fixed\", \"name\": \"f\", \"size\": -1}"),
      field("a", "{\"type\": \"enum\", \"name\": \"e\", \"symbols\": [\"a-b\"]}"),
      field("a", "{\"type\": \"record\", \"name\": \"r\", \"fields\": []}"),
      "{\"name\": \"a\"}",
      "{\"type\": \"long\"}",
      "\"long\""
    };
    for (String fields : wrong) {
      String told =
          assertThrows(IllegalArgumentException.class, () -> decoder("a BIGINT", fields))
              .getMessage();
      assertTrue(told.startsWith("unreadable Avro schema; expected JSON text of a record"), told);
    }
  }
}
