package onceflow.decoders;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.Decimal;

/**
 * From the values of a document to those of columns: strict, one at a time.
 *
 * <p>In two steps, as they were in Python, because the first complaint is the reason of a reject:
 * `convert` takes values of the right kind only, and `write` refuses those that do not fit.
 */
final class Values {
  private static final BigInteger MIN_LONG = BigInteger.valueOf(Long.MIN_VALUE);
  private static final BigInteger MAX_LONG = BigInteger.valueOf(Long.MAX_VALUE);

  private Values() {}

  /** The value as `write` takes it; null stays null. */
  static Object convert(Object value, Column column) throws PayloadException {
    if (value == null) {
      return null;
    }
    switch (column.kind) {
      case Column.BOOLEAN:
        return expect(value instanceof Boolean, value, "a boolean");
      case Column.BYTE:
      case Column.SHORT:
      case Column.INT:
      case Column.LONG:
        return expect(value instanceof BigInteger, value, "a whole number");
      case Column.FLOAT:
      case Column.DOUBLE:
        return number(value);
      case Column.STRING:
        return expect(value instanceof String, value, "a string");
      case Column.BINARY:
        if (value instanceof byte[]) {
          return value;
        }
        return Base64Text.decode((String) expect(value instanceof String, value, "base64 text"));
      case Column.DATE:
        if (value instanceof LocalDate) {
          return Integer.valueOf((int) ((LocalDate) value).toEpochDay());
        }
        String day = (String) expect(value instanceof String, value, "an ISO 8601 date");
        return Integer.valueOf(IsoText.day(day));
      case Column.MOMENT:
        if (value instanceof LocalDateTime) {
          return micros(((LocalDateTime) value).toInstant(ZoneOffset.UTC));
        }
        if (value instanceof Instant) {
          return micros((Instant) value);
        }
        String moment = (String) expect(value instanceof String, value, "an ISO 8601 timestamp");
        return Long.valueOf(IsoText.moment(moment));
      case Column.DECIMAL:
        return exact(value, column.scale);
      case Column.ARRAY:
        return array((List) expect(value instanceof List, value, "an array"), column.parts[0]);
      case Column.MAP:
        return map((Map) expect(value instanceof Map, value, "an object"), column);
      default:
        return struct((Map) expect(value instanceof Map, value, "an object"), column);
    }
  }

  private static Long micros(Instant moment) {
    return Long.valueOf(moment.getEpochSecond() * 1_000_000 + moment.getNano() / 1000);
  }

  private static Object expect(boolean isRight, Object value, String expected)
      throws PayloadException {
    if (isRight) {
      return value;
    }
    throw new PayloadException("expected " + expected + ", found " + Texts.shown(value));
  }

  private static Double number(Object value) throws PayloadException {
    if (value instanceof Double) {
      return (Double) value;
    }
    double number = Double.NaN;
    if (value instanceof BigInteger) {
      number = ((BigInteger) value).doubleValue();
      if (Double.isInfinite(number)) {
        throw new PayloadException("int too large to convert to float");
      }
    } else if (value instanceof ExactNumber) {
      number = ((ExactNumber) value).doubleValue();
    }
    boolean isFinite = !Double.isNaN(number) && !Double.isInfinite(number);
    expect(isFinite, value, "a number that a DOUBLE can hold");
    return Double.valueOf(number);
  }

  private static BigInteger exact(Object value, int scale) throws PayloadException {
    if (value instanceof String) {
      return ExactNumber.ofText((String) value).unscaled(scale);
    }
    if (value instanceof BigInteger) {
      return ExactNumber.of((BigInteger) value).unscaled(scale);
    }
    expect(value instanceof ExactNumber, value, "a decimal number");
    return ((ExactNumber) value).unscaled(scale);
  }

  private static List array(List values, Column item) throws PayloadException {
    List converted = new ArrayList(values.size());
    for (Iterator each = values.iterator(); each.hasNext(); ) {
      converted.add(convert(each.next(), item));
    }
    return converted;
  }

  /** Keys and values in turn. */
  private static List map(Map values, Column column) throws PayloadException {
    List converted = new ArrayList(2 * values.size());
    for (Iterator each = values.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry entry = (Map.Entry) each.next();
      converted.add(convert(entry.getKey(), column.parts[0]));
      converted.add(convert(entry.getValue(), column.parts[1]));
    }
    return converted;
  }

  private static Map struct(Map values, Column column) throws PayloadException {
    Map converted = new LinkedHashMap();
    for (int at = 0; at < column.names.length; at++) {
      converted.put(column.names[at], convert(values.get(column.names[at]), column.parts[at]));
    }
    return converted;
  }

  /** Writes a converted value to a row that is cleared. */
  static void write(Object value, Column column, WritableColumnVector vector, int row)
      throws PayloadException {
    if (value == null) {
      column.putNull(vector, row);
      return;
    }
    switch (column.kind) {
      case Column.BOOLEAN:
        vector.putBoolean(row, ((Boolean) value).booleanValue());
        break;
      case Column.BYTE:
        vector.putByte(row, (byte) whole(value, Byte.MIN_VALUE, Byte.MAX_VALUE));
        break;
      case Column.SHORT:
        vector.putShort(row, (short) whole(value, Short.MIN_VALUE, Short.MAX_VALUE));
        break;
      case Column.INT:
        vector.putInt(row, (int) whole(value, Integer.MIN_VALUE, Integer.MAX_VALUE));
        break;
      case Column.LONG:
        vector.putLong(row, whole(value, Long.MIN_VALUE, Long.MAX_VALUE));
        break;
      case Column.FLOAT:
        vector.putFloat(row, (float) ((Double) value).doubleValue());
        break;
      case Column.DOUBLE:
        vector.putDouble(row, ((Double) value).doubleValue());
        break;
      case Column.STRING:
        byte[] text = encoded((String) value);
        vector.putByteArray(row, text, 0, text.length);
        break;
      case Column.BINARY:
        vector.putByteArray(row, (byte[]) value, 0, ((byte[]) value).length);
        break;
      case Column.DATE:
        vector.putInt(row, ((Integer) value).intValue());
        break;
      case Column.MOMENT:
        vector.putLong(row, ((Long) value).longValue());
        break;
      case Column.DECIMAL:
        putDecimal(checked((BigInteger) value, column), column, vector, row);
        break;
      case Column.ARRAY:
      case Column.MAP:
        writeItems((List) value, column, vector, row);
        break;
      default:
        for (int at = 0; at < column.parts.length; at++) {
          Object part = ((Map) value).get(column.names[at]);
          write(part, column.parts[at], (WritableColumnVector) vector.getChild(at), row);
        }
    }
  }

  private static void writeItems(List values, Column column, WritableColumnVector vector, int row)
      throws PayloadException {
    int width = column.parts.length;
    int count = values.size() / width;
    int start = ((WritableColumnVector) vector.getChild(0)).getElementsAppended();
    for (int part = 0; part < width; part++) {
      WritableColumnVector items = (WritableColumnVector) vector.getChild(part);
      column.parts[part].reserve(items, start + count);
      items.addElementsAppended(count);
    }
    for (int at = 0; at < values.size(); at++) {
      WritableColumnVector items = (WritableColumnVector) vector.getChild(at % width);
      Column part = column.parts[at % width];
      part.clear(items, start + at / width);
      write(values.get(at), part, items, start + at / width);
    }
    vector.putArray(row, start, count);
  }

  /** Writes digits that fit, the way Spark's columns keep decimals of each precision. */
  static void putDecimal(BigInteger value, Column column, WritableColumnVector vector, int row) {
    if (column.precision <= Decimal.MAX_INT_DIGITS()) {
      vector.putInt(row, value.intValue());
    } else if (column.precision <= Decimal.MAX_LONG_DIGITS()) {
      vector.putLong(row, value.longValue());
    } else {
      byte[] bytes = value.toByteArray();
      vector.putByteArray(row, bytes, 0, bytes.length);
    }
  }

  private static BigInteger checked(BigInteger value, Column column) throws PayloadException {
    int digits = Math.max(value.abs().toString().length(), column.scale);
    if (digits > column.precision) {
      throw new PayloadException(
          "Decimal type with precision "
              + digits
              + " does not fit into precision inferred from first array element: "
              + column.precision);
    }
    return value;
  }

  private static long whole(Object value, long min, long max) throws PayloadException {
    BigInteger number = (BigInteger) value;
    if (number.compareTo(MIN_LONG) < 0 || number.compareTo(MAX_LONG) > 0) {
      throw new PayloadException("Python int too large to convert to C long");
    }
    long found = number.longValue();
    if (found < min || found > max) {
      throw new PayloadException("Value " + found + " too large to fit in C integer type");
    }
    return found;
  }

  private static byte[] encoded(String text) throws PayloadException {
    int position = 0;
    for (int at = 0; at < text.length(); position++) {
      int point = text.codePointAt(at);
      if (isHalf(point)) {
        int last = at;
        while (last + 1 < text.length() && isHalf(text.codePointAt(last + 1))) {
          last++;
        }
        String where =
            last == at
                ? "character '" + Texts.escaped(point) + "' in position " + position
                : "characters in position " + position + "-" + (position + last - at);
        throw new PayloadException(
            "'utf-8' codec can't encode " + where + ": surrogates not allowed");
      }
      at += Character.charCount(point);
    }
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static boolean isHalf(int point) {
    return point >= 0xD800 && point <= 0xDFFF;
  }
}
