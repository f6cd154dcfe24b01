package onceflow.decoders;

import java.util.Map;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/** JSON payloads: one object in each record, read quickly from bytes, or else by the tree. */
final class JsonDecoder extends Decoder {
  private final boolean isQuick;
  private final boolean hasMoments;
  private final ByteJson quick;

  /** Whether the record before had nanoseconds: then the next one has them, too. */
  private boolean isFine = false;

  JsonDecoder(StructType schema, WritableColumnVector[] vectors) {
    super(schema, vectors);
    boolean isQuick = true;
    boolean hasMoments = false;
    for (int at = 0; at < row.parts.length; at++) {
      Column column = row.parts[at];
      column.isFine = column.kind == Column.MOMENT;
      hasMoments |= column.isFine;
      isQuick &= column.isQuick(false);
    }
    this.isQuick = isQuick;
    this.hasMoments = hasMoments;
    quick = new ByteJson(row, vectors);
  }

  void read(byte[] bytes, int from, int to, int at) throws PayloadException {
    if (bytes == null) {
      throw new PayloadException("the record has no payload");
    }
    if (isQuick && to > from && bytes[from] == '{' && bytes[to - 1] == '}') {
      if (quick.read(bytes, from, to, at, isFine)) {
        return;
      }
      clear(at);
      if (hasMoments) {
        if (quick.read(bytes, from, to, at, !isFine)) {
          isFine = !isFine;
          return;
        }
        clear(at);
      }
    }
    Map fields = JsonTree.parse(bytes, from, to);
    for (int column = 0; column < vectors.length; column++) {
      Column part = row.parts[column];
      Values.write(Values.convert(fields.get(row.names[column]), part), part, vectors[column], at);
    }
  }

  private void clear(int at) {
    for (int column = 0; column < vectors.length; column++) {
      row.parts[column].clear(vectors[column], at);
    }
  }
}
