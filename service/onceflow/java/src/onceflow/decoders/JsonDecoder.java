package onceflow.decoders;

import java.util.Map;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/**
 * JSON payloads to columns: one object in each record, as
 * `onceflow_connectors.decoders.json_format` reads it, with the same reasons.
 */
public final class JsonDecoder {
  private final Column row;
  private final WritableColumnVector[] vectors;
  private final boolean isQuick;
  private final boolean hasMoments;
  private final ByteJson quick;

  /** Whether the record before had nanoseconds: then the next one has them, too. */
  private boolean isFine = false;

  /**
   * @param schema the columns that the query uses
   * @param vectors one for each column, in order
   */
  public JsonDecoder(StructType schema, WritableColumnVector[] vectors) {
    this.vectors = vectors;
    row = new Column(schema);
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

  /**
   * Decodes one payload into a row.
   *
   * @param bytes that hold the payload; null if the record has none
   * @return why it cannot be decoded, and then the row is null; null if it is decoded
   */
  public String decode(byte[] bytes, int from, int to, int at) {
    if (bytes != null && isQuick && to > from && bytes[from] == '{' && bytes[to - 1] == '}') {
      if (quick.read(bytes, from, to, at, isFine)) {
        return null;
      }
      clear(at);
      if (hasMoments) {
        if (quick.read(bytes, from, to, at, !isFine)) {
          isFine = !isFine;
          return null;
        }
        clear(at);
      }
    }
    try {
      decodeTree(bytes, from, to, at);
      return null;
    } catch (PayloadException refused) {
      for (int column = 0; column < vectors.length; column++) {
        row.parts[column].putNull(vectors[column], at);
      }
      return Texts.reason(refused.getMessage());
    }
  }

  private void decodeTree(byte[] bytes, int from, int to, int at) throws PayloadException {
    if (bytes == null) {
      throw new PayloadException("the record has no payload");
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
