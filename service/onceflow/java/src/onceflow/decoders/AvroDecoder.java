package onceflow.decoders;

import java.util.Arrays;
import java.util.Map;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/** Avro payloads: one plain datum in each record, without container and registry prefix. */
final class AvroDecoder extends Decoder {
  private final AvroType record;

  /** For each field of the record its column, or -1. */
  private final int[] columns;

  /** Columns that the record does not have. */
  private final boolean[] isMissing;

  private final AvroBytes in = new AvroBytes();

  AvroDecoder(StructType schema, WritableColumnVector[] vectors, Map options) {
    super(schema, vectors);
    record = AvroSchema.parse(String.valueOf(options.get("schema")));
    columns = new int[record.parts.length];
    Arrays.fill(columns, -1);
    isMissing = new boolean[vectors.length];
    for (int column = 0; column < vectors.length; column++) {
      int field = Arrays.asList((Object[]) record.names).lastIndexOf(row.names[column]);
      isMissing[column] = field < 0;
      if (field >= 0) {
        columns[field] = column;
      }
    }
  }

  void read(byte[] bytes, int from, int to, int at) throws PayloadException {
    if (bytes == null) {
      throw new PayloadException("the record has no payload");
    }
    try {
      in.begin(bytes, from, to);
      readQuickly(at);
    } catch (PayloadException refused) {
      explain(bytes, from, to, at);
      throw refused;
    }
  }

  /** Throws what Python finds: a mistake of the datum, or else that of the first column. */
  private void explain(byte[] bytes, int from, int to, int at) throws PayloadException {
    in.begin(bytes, from, to);
    Map fields = (Map) record.read(in, 0);
    requireEnd();
    for (int column = 0; column < vectors.length; column++) {
      Column part = row.parts[column];
      Values.write(Values.convert(fields.get(row.names[column]), part), part, vectors[column], at);
    }
  }

  private void readQuickly(int at) throws PayloadException {
    for (int field = 0; field < columns.length; field++) {
      int column = columns[field];
      if (column < 0) {
        record.parts[field].skip(in);
      } else {
        record.parts[field].readInto(in, row.parts[column], vectors[column], at);
      }
    }
    requireEnd();
    for (int column = 0; column < isMissing.length; column++) {
      if (isMissing[column]) {
        row.parts[column].putNull(vectors[column], at);
      }
    }
  }

  private void requireEnd() throws PayloadException {
    if (in.at < in.end) {
      throw new PayloadException(in.end - in.at + " bytes after the datum");
    }
  }
}
