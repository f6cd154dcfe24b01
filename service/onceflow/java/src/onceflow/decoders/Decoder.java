package onceflow.decoders;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/**
 * Decodes payloads of one format into columns, as `onceflow_connectors.decoders` does: with equal
 * rows, and equal reasons for those that are bad.
 */
public abstract class Decoder {
  final Column row;
  final WritableColumnVector[] vectors;

  Decoder(StructType schema, WritableColumnVector[] vectors) {
    row = new Column(schema);
    this.vectors = vectors;
  }

  /**
   * The decoder of a format.
   *
   * @param format its name in a pipeline file
   * @param options its options, as JSON text
   * @param schema the columns that come from payloads and that the query uses
   * @param vectors one for each column, in order
   * @throws IllegalArgumentException options or columns do not fit
   */
  public static Decoder of(
      String format, String options, StructType schema, WritableColumnVector[] vectors) {
    if (format.equals("json")) {
      return new JsonDecoder(schema, vectors);
    }
    if (format.equals("avro")) {
      return new AvroDecoder(schema, vectors, parsed(options));
    }
    if (format.equals("csv")) {
      return new CsvDecoder(schema, vectors, parsed(options));
    }
    if (format.equals("text") || format.equals("binary")) {
      int wanted = format.equals("text") ? Column.STRING : Column.BINARY;
      return new PlainDecoder(schema, vectors, wanted);
    }
    throw new IllegalArgumentException("Java has no decoder for payloads of format " + format);
  }

  private static Map parsed(String options) {
    byte[] bytes = options.getBytes(StandardCharsets.UTF_8);
    try {
      return JsonTree.parse(bytes, 0, bytes.length);
    } catch (PayloadException error) {
      throw new IllegalArgumentException("options of a format: " + error.getMessage());
    }
  }

  /**
   * Decodes one payload into a row.
   *
   * @param bytes that hold the payload; null if the record has none
   * @return why it cannot be decoded, and then the row is null; null if it is decoded
   */
  public final String decode(byte[] bytes, int from, int to, int at) {
    try {
      read(bytes, from, to, at);
      return null;
    } catch (PayloadException refused) {
      for (int column = 0; column < vectors.length; column++) {
        row.parts[column].putNull(vectors[column], at);
      }
      return Texts.reason(refused.getMessage());
    }
  }

  /** The same, but a row that was refused may be half written. */
  abstract void read(byte[] bytes, int from, int to, int at) throws PayloadException;
}
