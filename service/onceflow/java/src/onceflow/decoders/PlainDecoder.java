package onceflow.decoders;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/** Payloads that are one value: text in UTF-8, or bytes. A record without a payload is a null. */
final class PlainDecoder extends Decoder {
  PlainDecoder(StructType schema, WritableColumnVector[] vectors, int wanted) {
    super(schema, vectors);
    if (vectors.length > 1 || vectors.length == 1 && row.parts[0].kind != wanted) {
      throw new IllegalArgumentException(
          "the format has a single column; expected one payload column of type "
              + (wanted == Column.STRING ? "STRING" : "BINARY")
              + "; found "
              + schema.toDDL());
    }
  }

  void read(byte[] bytes, int from, int to, int at) throws PayloadException {
    for (int column = 0; column < vectors.length; column++) {
      if (bytes == null) {
        vectors[column].putNull(at);
        continue;
      }
      if (row.parts[column].kind == Column.STRING && !Utf8.isValid(bytes, from, to)) {
        throw new PayloadException("not UTF-8: Invalid UTF8 payload");
      }
      vectors[column].putByteArray(at, bytes, from, to - from);
    }
  }
}
