package onceflow.decoders;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

/** What one decoder does with many records; `test_java_decoders.py` shows what it makes of each. */
class JsonDecoderTest {
  private OnHeapColumnVector[] columns;

  private Decoder decoder(String ddl) {
    StructType schema = StructType.fromDDL(ddl);
    columns = OnHeapColumnVector.allocateColumns(4, schema);
    return Decoder.of("json", "{}", schema, columns);
  }

  private static String decode(Decoder decoder, String payload, int row) {
    byte[] bytes = ("??" + payload + "?").getBytes(StandardCharsets.UTF_8);
    return decoder.decode(bytes, 2, bytes.length - 1, row);
  }

  private void reset() {
    for (OnHeapColumnVector column : columns) {
      column.reset();
    }
  }

  @Test
  void fieldsMayComeInAnotherOrderThanBefore() {
    Decoder decoder = decoder("a BIGINT, b STRING");

    assertNull(decode(decoder, "{\"a\":1,\"b\":\"x\"}", 0));
    assertNull(decode(decoder, "{\"b\":\"y\",\"x\":[],\"a\":2}", 1));
    assertNull(decode(decoder, "{\"a\":3}", 2));
    assertNull(decode(decoder, "{\"ab\":9,\"a\":4,\"b\":\"z\"}", 3));

    long[] numbers = columns[0].getLongs(0, 4);
    assertEquals("1 2 3 4", numbers[0] + " " + numbers[1] + " " + numbers[2] + " " + numbers[3]);
    assertEquals("xy", columns[1].getUTF8String(0) + "" + columns[1].getUTF8String(1));
    assertTrue(columns[1].isNullAt(2));
  }

  @Test
  void columnsAreUsedAgain() {
    Decoder decoder = decoder("a ARRAY<STRUCT<x: STRING, y: BIGINT>>");
    for (int batch = 0; batch < 3; batch++) {
      assertNull(decode(decoder, "{\"a\":[{\"x\":\"q\"},null,{\"y\":7}]}", 0));
      assertEquals("expected an array, found 5", decode(decoder, "{\"a\":5}", 1));
      assertNull(decode(decoder, "{\"a\":[{\"x\":\"r\",\"y\":8}]}", 2));

      assertEquals(3, columns[0].getArray(0).numElements());
      assertEquals("q", columns[0].getArray(0).getStruct(0, 2).getUTF8String(0).toString());
      assertTrue(columns[0].getArray(0).isNullAt(1));
      assertEquals(7, columns[0].getArray(0).getStruct(2, 2).getLong(1));
      assertTrue(columns[0].isNullAt(1));
      assertEquals(8, columns[0].getArray(2).getStruct(0, 2).getLong(1));
      reset();
    }
  }

  @Test
  void moreItemsThanRowsHaveRoom() {
    Decoder decoder = decoder("a ARRAY<STRUCT<x: BIGINT>>");
    StringBuilder items = new StringBuilder("{\"x\":0}");
    for (int item = 1; item < 10_000; item++) {
      items.append(",{\"x\":").append(item).append('}');
    }

    assertNull(decode(decoder, "{\"a\":[" + items + "]}", 0));

    assertEquals(9_999, columns[0].getArray(0).getStruct(9_999, 1).getLong(0));
  }

  @Test
  void otherFieldsMayBeOfAnyDepth() {
    Decoder decoder = decoder("a BIGINT");
    String deep = "[{\"x\":".repeat(200_000) + "1" + "}]".repeat(200_000);

    assertNull(decode(decoder, "{\"b\":" + deep + ",\"a\":1}", 0));
    assertEquals(
        "not JSON: maximum recursion depth exceeded while decoding a JSON object from a unicode"
            + " string",
        decode(decoder, "{\"a\":" + deep + "}", 1));
  }
}
