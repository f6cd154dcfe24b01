package onceflow.decoders;

import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
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
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** The type of a column or of a part of one, taken apart once for all records. */
final class Column {
  static final int BOOLEAN = 0;
  static final int BYTE = 1;
  static final int SHORT = 2;
  static final int INT = 3;
  static final int LONG = 4;
  static final int FLOAT = 5;
  static final int DOUBLE = 6;
  static final int STRING = 7;
  static final int BINARY = 8;
  static final int DATE = 9;
  static final int MOMENT = 10;
  static final int DECIMAL = 11;
  static final int ARRAY = 12;
  static final int MAP = 13;
  static final int STRUCT = 14;

  final int kind;
  final DataType type;

  /** Fields of a struct; item of an array; key and value of a map. */
  final Column[] parts;

  /** Of the fields of a struct. */
  final String[] names;

  final byte[][] nameBytes;
  final int precision;
  final int scale;

  /** The object in which each field was seen last, by number. */
  final long[] seenIn;

  /** The number of the object that is read. */
  long object = 0;

  /** A time that is a column itself may have nanoseconds. */
  boolean isFine = false;

  Column(DataType type) {
    this.type = type;
    kind = kindOf(type);
    int[] digits = digitsOf(type);
    precision = digits[0];
    scale = digits[1];
    if (kind == STRUCT) {
      names = ((StructType) type).fieldNames();
    } else {
      names = new String[0];
    }
    nameBytes = new byte[names.length][];
    for (int at = 0; at < names.length; at++) {
      nameBytes[at] = names[at].getBytes(StandardCharsets.UTF_8);
    }
    seenIn = new long[names.length];
    parts = partsOf(type, names.length);
  }

  /** Takes away what a record has left at a row, in the column and in the fields of structs. */
  void clear(WritableColumnVector vector, int row) {
    vector.putNotNull(row);
    if (kind == STRUCT) {
      for (int at = 0; at < parts.length; at++) {
        parts[at].clear((WritableColumnVector) vector.getChild(at), row);
      }
    }
  }

  void putNull(WritableColumnVector vector, int row) {
    vector.putNull(row);
    if (kind == STRUCT) {
      for (int at = 0; at < parts.length; at++) {
        parts[at].putNull((WritableColumnVector) vector.getChild(at), row);
      }
    }
  }

  /** Makes room for this many rows, in the fields of structs too. */
  void reserve(WritableColumnVector vector, int rows) {
    vector.reserve(rows);
    if (kind == STRUCT) {
      for (int at = 0; at < parts.length; at++) {
        parts[at].reserve((WritableColumnVector) vector.getChild(at), rows);
      }
    }
  }

  /** Whether the parser of bytes knows the type. Dates inside of others are read as text. */
  boolean isQuick(boolean isInside) {
    if (kind == BINARY || kind == MAP || kind == DATE && isInside) {
      return false;
    }
    for (int at = 0; at < parts.length; at++) {
      if (!parts[at].isQuick(true)) {
        return false;
      }
    }
    return true;
  }

  boolean hasDecimals() {
    boolean has = kind == DECIMAL;
    for (int at = 0; at < parts.length; at++) {
      has |= parts[at].hasDecimals();
    }
    return has;
  }

  private static Column[] partsOf(DataType type, int fields) {
    if (type instanceof ArrayType) {
      return new Column[] {new Column(((ArrayType) type).elementType())};
    }
    if (type instanceof MapType) {
      MapType map = (MapType) type;
      return new Column[] {new Column(map.keyType()), new Column(map.valueType())};
    }
    Column[] parts = new Column[fields];
    for (int at = 0; at < fields; at++) {
      parts[at] = new Column(((StructType) type).fields()[at].dataType());
    }
    return parts;
  }

  private static int[] digitsOf(DataType type) {
    if (!(type instanceof DecimalType)) {
      return new int[2];
    }
    DecimalType decimal = (DecimalType) type;
    return new int[] {decimal.precision(), decimal.scale()};
  }

  private static int kindOf(DataType type) {
    if (type instanceof BooleanType) {
      return BOOLEAN;
    }
    if (type instanceof ByteType) {
      return BYTE;
    }
    if (type instanceof ShortType) {
      return SHORT;
    }
    if (type instanceof IntegerType) {
      return INT;
    }
    if (type instanceof LongType) {
      return LONG;
    }
    if (type instanceof FloatType) {
      return FLOAT;
    }
    if (type instanceof DoubleType) {
      return DOUBLE;
    }
    if (type instanceof StringType) {
      return STRING;
    }
    if (type instanceof BinaryType) {
      return BINARY;
    }
    if (type instanceof DateType) {
      return DATE;
    }
    if (type instanceof TimestampType || type instanceof TimestampNTZType) {
      return MOMENT;
    }
    if (type instanceof DecimalType) {
      return DECIMAL;
    }
    if (type instanceof ArrayType) {
      return ARRAY;
    }
    if (type instanceof MapType) {
      return MAP;
    }
    if (type instanceof StructType) {
      return STRUCT;
    }
    throw new IllegalArgumentException("columns of type " + type.sql() + " cannot be read");
  }
}
