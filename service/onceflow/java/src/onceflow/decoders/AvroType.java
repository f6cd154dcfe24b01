package onceflow.decoders;

import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;

/**
 * A type that data was written with, with its logical type, and how a value of it is read.
 *
 * <p>Values are those of JsonTree, and byte[], LocalDate, LocalTime, Instant, LocalDateTime and
 * UUID. Python's reader has these names for the mistakes.
 */
final class AvroType {
  static final int NULL = 0;
  static final int BOOLEAN = 1;
  static final int NUMBER = 2;
  static final int FLOAT = 3;
  static final int DOUBLE = 4;
  static final int BYTES = 5;
  static final int STRING = 6;
  static final int FIXED = 7;
  static final int ENUM = 8;
  static final int ARRAY = 9;
  static final int MAP = 10;
  static final int UNION = 11;
  static final int RECORD = 12;
  static final int DATE = 13;
  static final int TIME_MILLIS = 14;
  static final int TIME_MICROS = 15;
  static final int MILLIS = 16;
  static final int MICROS = 17;
  static final int LOCAL_MILLIS = 18;
  static final int LOCAL_MICROS = 19;
  static final int DECIMAL = 20;
  static final int UUID = 21;

  /** Values inside one another; each level takes some of the thread's stack. */
  private static final int MAX_DEPTH = 1000;

  /** The first microsecond of the year 1, and the one after the year 9999. */
  private static final long FIRST_MICRO = -62135596800000000L;

  private static final long AFTER_MICROS = 253402300800000000L;

  /** 1970-01-01, if 0001-01-01 is the day 1. */
  private static final long DAYS_BEFORE = 719163;

  private static final long LAST_DAY = 3652059;

  final int kind;

  /** Fields of a record; item of an array; value of a map; branches of a union. */
  AvroType[] parts = new AvroType[0];

  /** Of the fields of a record; of the values of an enum. */
  String[] names = new String[0];

  /** Of a fixed in bytes; -1 if the value says its size. */
  int size = -1;

  /** Of a decimal; -1 if the schema does not say it. */
  int precision = -1;

  int scale = 0;

  AvroType(int kind) {
    this.kind = kind;
  }

  Object read(AvroBytes in, int depth) throws PayloadException {
    if (depth > MAX_DEPTH) {
      throw AvroBytes.wrong("more than " + MAX_DEPTH + " values inside one another");
    }
    switch (kind) {
      case NULL:
        return null;
      case BOOLEAN:
        return Boolean.valueOf(in.isTrue());
      case NUMBER:
        return BigInteger.valueOf(in.number());
      case FLOAT:
        return Double.valueOf(in.floating());
      case DOUBLE:
        return Double.valueOf(in.floatingDouble());
      case BYTES:
      case FIXED:
        skipBytes(in);
        return in.copy();
      case STRING:
        return in.text();
      case ENUM:
        return names[index(in, names.length)];
      case ARRAY:
        return readArray(in, depth);
      case MAP:
        return readMap(in, depth);
      case UNION:
        return parts[index(in, parts.length)].read(in, depth + 1);
      case RECORD:
        return readRecord(in, depth);
      case DATE:
        return LocalDate.ofEpochDay(day(in));
      case TIME_MILLIS:
        return time(in.number(), 1000);
      case TIME_MICROS:
        return time(in.number(), 1_000_000);
      case MILLIS:
      case MICROS:
        return instant(moment(in));
      case LOCAL_MILLIS:
      case LOCAL_MICROS:
        return LocalDateTime.ofInstant(instant(moment(in)), ZoneOffset.UTC);
      case DECIMAL:
        return ExactNumber.of(unscaled(in), scale);
      default:
        return Uuids.parse(in.text());
    }
  }

  /** The same, but makes no values of the simple types. */
  void skip(AvroBytes in) throws PayloadException {
    switch (kind) {
      case NUMBER:
        in.number();
        break;
      case STRING:
        in.skipText();
        break;
      case BYTES:
      case FIXED:
        skipBytes(in);
        break;
      case DOUBLE:
        in.skip(8);
        break;
      case MILLIS:
      case MICROS:
        moment(in);
        break;
      case UNION:
        parts[index(in, parts.length)].skip(in);
        break;
      default:
        read(in, 1);
    }
  }

  /**
   * Reads a value into a row that is cleared. What a column of the type may hold goes there without
   * a detour.
   */
  void readInto(AvroBytes in, Column column, WritableColumnVector vector, int row)
      throws PayloadException {
    if (kind == UNION) {
      parts[index(in, parts.length)].readInto(in, column, vector, row);
    } else if (kind == NUMBER && column.kind == Column.LONG) {
      vector.putLong(row, in.number());
    } else if (kind == NUMBER && column.kind == Column.INT) {
      long number = in.number();
      if (number != (int) number) {
        throw new PayloadException("too large");
      }
      vector.putInt(row, (int) number);
    } else if (kind == STRING && column.kind == Column.STRING) {
      in.skipText();
      vector.putByteArray(row, in.bytes, in.from, in.at - in.from);
    } else if (kind == DOUBLE && column.kind == Column.DOUBLE) {
      vector.putDouble(row, in.floatingDouble());
    } else if (kind == BOOLEAN && column.kind == Column.BOOLEAN) {
      vector.putBoolean(row, in.isTrue());
    } else if ((kind == BYTES || kind == FIXED) && column.kind == Column.BINARY) {
      skipBytes(in);
      vector.putByteArray(row, in.bytes, in.from, in.at - in.from);
    } else if (kind >= MILLIS && kind <= LOCAL_MICROS && column.kind == Column.MOMENT) {
      vector.putLong(row, moment(in));
    } else {
      Values.write(Values.convert(read(in, 1), column), column, vector, row);
    }
  }

  private void skipBytes(AvroBytes in) throws PayloadException {
    in.skip(size < 0 ? in.number() : size);
  }

  /** A place in a list of Python, which counts from the end where it is negative. */
  private static int index(AvroBytes in, int length) throws PayloadException {
    long index = in.number();
    index += index < 0 ? length : 0;
    if (index < 0 || index >= length) {
      throw AvroBytes.wrong("IndexError");
    }
    return (int) index;
  }

  private List readArray(AvroBytes in, int depth) throws PayloadException {
    List items = new ArrayList();
    for (long count = count(in); count != 0; count = count(in)) {
      for (long item = 0; item < count; item++) {
        int start = in.at;
        items.add(parts[0].read(in, depth + 1));
        in.countEmpty(start);
      }
    }
    return items;
  }

  private Map readMap(AvroBytes in, int depth) throws PayloadException {
    Map entries = new LinkedHashMap();
    for (long count = count(in); count != 0; count = count(in)) {
      for (long entry = 0; entry < count; entry++) {
        String key = in.text();
        entries.put(key, parts[0].read(in, depth + 1));
      }
    }
    return entries;
  }

  /** How many items follow; if negative, the size of the block is there, too. */
  private static long count(AvroBytes in) throws PayloadException {
    long count = in.number();
    if (count < 0) {
      in.number();
      return -count;
    }
    return count;
  }

  private Map readRecord(AvroBytes in, int depth) throws PayloadException {
    Map fields = new LinkedHashMap();
    for (int at = 0; at < parts.length; at++) {
      fields.put(names[at], parts[at].read(in, depth + 1));
    }
    return fields;
  }

  private BigInteger unscaled(AvroBytes in) throws PayloadException {
    skipBytes(in);
    if (precision < 0) {
      throw AvroBytes.wrong("KeyError");
    }
    BigInteger value = in.bigEndian();
    if (value.abs().toString().length() > precision) {
      throw AvroBytes.wrong("ValueError");
    }
    return value;
  }

  private static long day(AvroBytes in) throws PayloadException {
    long day = in.number();
    if (day > Integer.MAX_VALUE - DAYS_BEFORE || day < Integer.MIN_VALUE - DAYS_BEFORE) {
      throw AvroBytes.wrong("OverflowError");
    }
    if (day < 1 - DAYS_BEFORE || day > LAST_DAY - DAYS_BEFORE) {
      throw AvroBytes.wrong("ValueError");
    }
    return day;
  }

  /** In microseconds. */
  private long moment(AvroBytes in) throws PayloadException {
    long value = in.number();
    long unit = kind == MILLIS || kind == LOCAL_MILLIS ? 1000 : 1;
    if (value >= AFTER_MICROS / unit || value < FIRST_MICRO / unit) {
      throw AvroBytes.wrong("OverflowError");
    }
    return value * unit;
  }

  private static Instant instant(long micros) {
    long seconds = Math.floorDiv(micros, 1_000_000L);
    return Instant.ofEpochSecond(seconds, (micros - seconds * 1_000_000L) * 1000);
  }

  /** A time of day, with Python's divisions: what is less than an hour before midnight is there. */
  private static LocalTime time(long value, long perSecond) throws PayloadException {
    double hour = (double) value / (3600 * perSecond);
    if (Math.abs(hour) >= 1L << 31) {
      throw AvroBytes.wrong("OverflowError");
    }
    if (hour <= -1 || hour >= 24) {
      throw AvroBytes.wrong("ValueError");
    }
    long minute = Math.floorMod(value / (60 * perSecond), 60L);
    long second = Math.floorMod(value / perSecond, 60L);
    long nanos = Math.floorMod(value, perSecond) * (1_000_000_000 / perSecond);
    return LocalTime.of((int) hour, (int) minute, (int) second, (int) nanos);
  }
}
