package onceflow.tests;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import onceflow.decoders.Decoder;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;

/** Decodes payloads and writes what came out as text, one line for each, for a comparison. */
public class DecoderProbe {
  /** Payloads are framed by their length, -1 for none; lines end with a line feed. */
  public byte[] decode(String format, String options, String ddl, byte[] framed) {
    StructType schema = StructType.fromDDL(ddl);
    OnHeapColumnVector[] vectors = OnHeapColumnVector.allocateColumns(1024, schema);
    Decoder decoder = Decoder.of(format, options, schema, vectors);
    ByteBuffer frames = ByteBuffer.wrap(framed);
    StringBuilder lines = new StringBuilder();
    for (int row = 0; frames.hasRemaining(); row++) {
      int length = frames.getInt();
      int from = frames.position();
      String reason =
          length < 0
              ? decoder.decode(null, 0, 0, row)
              : decoder.decode(framed, from, from + length, row);
      frames.position(from + Math.max(length, 0));
      lines.append(reason == null ? "" : reason).append('\t');
      for (int column = 0; column < vectors.length; column++) {
        write(schema.fields()[column].dataType(), vectors[column], row, lines);
        lines.append(' ');
      }
      lines.append('\n');
    }
    return lines.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static void write(DataType type, ColumnVector vector, int row, StringBuilder text) {
    if (vector.isNullAt(row)) {
      text.append("null");
    } else if (type instanceof BooleanType) {
      text.append(vector.getBoolean(row) ? 1 : 0);
    } else if (type instanceof ByteType) {
      text.append(vector.getByte(row));
    } else if (type instanceof ShortType) {
      text.append(vector.getShort(row));
    } else if (type instanceof IntegerType || type instanceof DateType) {
      text.append(vector.getInt(row));
    } else if (type instanceof FloatType) {
      text.append(Integer.toHexString(Float.floatToIntBits(vector.getFloat(row))));
    } else if (type instanceof DoubleType) {
      text.append(Long.toHexString(Double.doubleToLongBits(vector.getDouble(row))));
    } else if (type instanceof StringType || type instanceof BinaryType) {
      byte[] bytes = vector.getBinary(row);
      text.append('x');
      for (int at = 0; at < bytes.length; at++) {
        text.append(Integer.toHexString(0x100 | bytes[at] & 0xFF).substring(1));
      }
    } else if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      text.append(
          vector
              .getDecimal(row, decimal.precision(), decimal.scale())
              .toJavaBigDecimal()
              .unscaledValue());
    } else if (type instanceof ArrayType) {
      ColumnarArray array = vector.getArray(row);
      text.append('[');
      for (int at = 0; at < array.numElements(); at++) {
        write(((ArrayType) type).elementType(), vector.getChild(0), offset(vector, row) + at, text);
        text.append(',');
      }
      text.append(']');
    } else if (type instanceof MapType) {
      ColumnarMap map = vector.getMap(row);
      text.append('<');
      for (int at = 0; at < map.numElements(); at++) {
        int place = offset(vector, row) + at;
        write(((MapType) type).keyType(), vector.getChild(0), place, text);
        text.append('=');
        write(((MapType) type).valueType(), vector.getChild(1), place, text);
        text.append(',');
      }
      text.append('>');
    } else if (type instanceof StructType) {
      text.append('(');
      for (int at = 0; at < ((StructType) type).fields().length; at++) {
        write(((StructType) type).fields()[at].dataType(), vector.getChild(at), row, text);
        text.append(',');
      }
      text.append(')');
    } else {
      text.append(vector.getLong(row));
    }
  }

  private static int offset(ColumnVector vector, int row) {
    return ((OnHeapColumnVector) vector).getArrayOffset(row);
  }
}
