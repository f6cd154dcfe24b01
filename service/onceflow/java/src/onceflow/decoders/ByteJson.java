package onceflow.decoders;

import java.math.BigInteger;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.unsafe.Platform;

/**
 * Reads JSON objects byte by byte, straight into columns, and keeps nothing of other fields.
 *
 * <p>Takes what Arrow's parser took, with the same values: any depth in other fields, and any bytes
 * in their strings. Refuses the rest without a reason; JsonTree has one, or reads it.
 */
final class ByteJson {
  private static final Unlike UNLIKE = new Unlike();
  private static final long ONES = 0x0101010101010101L;
  private static final long HIGH = 0x8080808080808080L;
  private static final long QUOTES = ONES * '"';
  private static final long SLASHES = ONES * '\\';
  private static final long BLANKS = ONES * ' ';
  private static final boolean IS_LITTLE_ENDIAN =
      ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

  /** Places after the point from which on Arrow may round a decimal. */
  static final int TINY = 30;

  private static final int MAX_LAYOUT = 1024;
  private static final double[] POWERS = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22
  };

  private final Column row;
  private final WritableColumnVector[] vectors;
  private final boolean hasDecimals;

  /** How the record before was laid out: the bytes of each name with its colon, and its column. */
  private byte[][] layout = new byte[16][];

  private int[] layoutColumns = new int[16];
  private int layoutLength = 0;
  private byte[] b;
  private int p;
  private int end;
  private boolean isFine;
  private byte[] text;
  private int textFrom;
  private int textTo;
  private byte[] scratch = new byte[256];

  /** Of the number that was read last. */
  private int integerEnd;

  ByteJson(Column row, WritableColumnVector[] vectors) {
    this.row = row;
    this.vectors = vectors;
    hasDecimals = row.hasDecimals();
  }

  /**
   * Whether the payload was read. If not, its row is half written.
   *
   * @param isFine reads times to nanoseconds
   */
  boolean read(byte[] bytes, int from, int to, int at, boolean isFine) {
    b = bytes;
    p = from;
    end = to;
    this.isFine = isFine;
    try {
      need('{');
      fields(at);
      return p == end;
    } catch (Unlike refused) {
      return false;
    }
  }

  private void fields(int at) throws Unlike {
    long object = ++row.object;
    blanks();
    if (p < end && b[p] == '}') {
      p++;
    } else {
      for (int field = 0; ; field++) {
        int column = column(field);
        blanks();
        if (column < 0) {
          skip();
        } else {
          field(row, column, vectors[column], at);
        }
        if (isOver('}')) {
          break;
        }
      }
    }
    for (int column = 0; column < vectors.length; column++) {
      if (row.seenIn[column] != object) {
        row.parts[column].putNull(vectors[column], at);
      }
    }
  }

  /** Which column the next name belongs to; -1 if none. Guesses that fields come as before. */
  private int column(int field) throws Unlike {
    if (field < layoutLength) {
      byte[] known = layout[field];
      if (end - p >= known.length
          && Arrays.equals(b, p, p + known.length, known, 0, known.length)) {
        p += known.length;
        return layoutColumns[field];
      }
    }
    int start = p;
    int column = name(row);
    if (field < MAX_LAYOUT) {
      if (field >= layout.length) {
        layout = (byte[][]) Arrays.copyOf(layout, 2 * field);
        layoutColumns = Arrays.copyOf(layoutColumns, 2 * field);
      }
      layout[field] = Arrays.copyOfRange(b, start, p);
      layoutColumns[field] = column;
      layoutLength = field + 1;
    }
    return column;
  }

  /** A name and its colon. */
  private int name(Column of) throws Unlike {
    need('"');
    string();
    int found = -1;
    for (int at = 0; at < of.nameBytes.length && found < 0; at++) {
      byte[] name = of.nameBytes[at];
      if (Arrays.equals(text, textFrom, textTo, name, 0, name.length)) {
        found = at;
      }
    }
    blanks();
    need(':');
    return found;
  }

  private void field(Column of, int at, WritableColumnVector vector, int into) throws Unlike {
    if (of.seenIn[at] == of.object) {
      throw UNLIKE;
    }
    of.seenIn[at] = of.object;
    value(of.parts[at], vector, into);
  }

  private void value(Column column, WritableColumnVector vector, int into) throws Unlike {
    if (p >= end) {
      throw UNLIKE;
    }
    if (b[p] == 'n') {
      word("null");
      column.putNull(vector, into);
      return;
    }
    switch (column.kind) {
      case Column.BOOLEAN:
        boolean isTrue = b[p] == 't';
        word(isTrue ? "true" : "false");
        vector.putBoolean(into, isTrue);
        break;
      case Column.BYTE:
        vector.putByte(into, (byte) integer(Byte.MIN_VALUE, Byte.MAX_VALUE));
        break;
      case Column.SHORT:
        vector.putShort(into, (short) integer(Short.MIN_VALUE, Short.MAX_VALUE));
        break;
      case Column.INT:
        vector.putInt(into, (int) integer(Integer.MIN_VALUE, Integer.MAX_VALUE));
        break;
      case Column.LONG:
        vector.putLong(into, integer(Long.MIN_VALUE, Long.MAX_VALUE));
        break;
      case Column.FLOAT:
        vector.putFloat(into, floating());
        break;
      case Column.DOUBLE:
        vector.putDouble(into, floatingDouble());
        break;
      case Column.STRING:
        need('"');
        if (string() && !Utf8.isValid(text, textFrom, textTo)) {
          throw UNLIKE;
        }
        vector.putByteArray(into, text, textFrom, textTo - textFrom);
        break;
      case Column.DATE:
        need('"');
        string();
        vector.putInt(into, (int) known(IsoText.quickDay(text, textFrom, textTo)));
        break;
      case Column.MOMENT:
        need('"');
        string();
        vector.putLong(
            into, known(IsoText.quickMoment(text, textFrom, textTo, isFine && column.isFine)));
        break;
      case Column.DECIMAL:
        decimal(column, vector, into);
        break;
      case Column.ARRAY:
        array(column.parts[0], vector, into);
        break;
      default:
        struct(column, vector, into);
    }
  }

  private static long known(long time) throws Unlike {
    if (time == IsoText.NONE) {
      throw UNLIKE;
    }
    return time;
  }

  private void array(Column item, WritableColumnVector vector, int into) throws Unlike {
    need('[');
    blanks();
    WritableColumnVector items = (WritableColumnVector) vector.getChild(0);
    int start = items.getElementsAppended();
    int count = 0;
    if (p < end && b[p] == ']') {
      p++;
    } else {
      do {
        item.reserve(items, start + count + 1);
        items.addElementsAppended(1);
        item.clear(items, start + count);
        value(item, items, start + count++);
      } while (!isOver(']'));
    }
    vector.putArray(into, start, count);
  }

  private void struct(Column column, WritableColumnVector vector, int into) throws Unlike {
    need('{');
    long object = ++column.object;
    blanks();
    if (p < end && b[p] == '}') {
      p++;
    } else {
      do {
        int at = name(column);
        blanks();
        if (at < 0) {
          skip();
        } else {
          field(column, at, (WritableColumnVector) vector.getChild(at), into);
        }
      } while (!isOver('}'));
    }
    for (int at = 0; at < column.parts.length; at++) {
      if (column.seenIn[at] != object) {
        column.parts[at].putNull((WritableColumnVector) vector.getChild(at), into);
      }
    }
  }

  private long integer(long min, long max) throws Unlike {
    int start = p;
    number();
    boolean isNegative = b[start] == '-';
    int first = isNegative ? start + 1 : start;
    if (integerEnd != p || p == first || p - first > 19) {
      throw UNLIKE;
    }
    long value = 0; // negative, as there is one more of these
    for (int at = first; at < p; at++) {
      int digit = b[at] - '0';
      if (value < Long.MIN_VALUE / 10 || 10 * value < Long.MIN_VALUE + digit) {
        throw UNLIKE;
      }
      value = 10 * value - digit;
    }
    if (!isNegative && value == Long.MIN_VALUE) {
      throw UNLIKE;
    }
    value = isNegative ? value : -value;
    if (value < min || value > max) {
      throw UNLIKE;
    }
    return value;
  }

  private double floatingDouble() throws Unlike {
    int start = p;
    number();
    if (integerEnd < 0) {
      return special(start);
    }
    double quick = quickDouble(start);
    return Double.isNaN(quick) ? Double.parseDouble(latin(start)) : quick;
  }

  private float floating() throws Unlike {
    int start = p;
    number();
    return integerEnd < 0 ? (float) special(start) : Float.parseFloat(latin(start));
  }

  private double special(int start) {
    if (b[p - 1] == 'N') {
      return Double.NaN;
    }
    return b[start] == '-' ? Double.NEGATIVE_INFINITY : Double.POSITIVE_INFINITY;
  }

  private String latin(int start) {
    return new String(b, start, p - start, StandardCharsets.ISO_8859_1);
  }

  /** Exact if the digits and the power of ten are doubles themselves; else NaN. */
  private double quickDouble(int start) {
    boolean isNegative = b[start] == '-';
    int at = isNegative ? start + 1 : start;
    long digits = 0;
    int power = 0;
    for (;
        at < p && b[at] >= '0' && b[at] <= '9' || at == integerEnd && at < p && b[at] == '.';
        at++) {
      if (b[at] == '.') {
        continue;
      }
      digits = 10 * digits + b[at] - '0';
      power -= at > integerEnd ? 1 : 0;
      if (digits > 1L << 53) {
        return Double.NaN;
      }
    }
    if (at < p || power < -22) {
      return Double.NaN;
    }
    double value = digits / POWERS[-power];
    return isNegative ? -value : value;
  }

  private void decimal(Column column, WritableColumnVector vector, int into) throws Unlike {
    String written;
    if (b[p] == '"') {
      p++;
      string();
      written = new String(text, textFrom, textTo - textFrom, StandardCharsets.ISO_8859_1);
    } else {
      int start = p;
      number();
      written = latin(start);
    }
    if (!ExactNumber.isQuick(written)) {
      throw UNLIKE;
    }
    BigInteger value;
    try {
      value = ExactNumber.parse(written).unscaled(column.scale);
    } catch (PayloadException refused) {
      throw UNLIKE;
    }
    if (value.abs().toString().length() > column.precision) {
      throw UNLIKE;
    }
    Values.putDecimal(value, column, vector, into);
  }

  /** A number; sets where its whole part ends, or -1 if it is NaN or infinite. */
  private void number() throws Unlike {
    if (p < end && b[p] == '-') {
      p++;
    }
    if (p < end && (b[p] == 'N' || b[p] == 'I')) {
      integerEnd = -1;
      word(b[p] == 'N' ? "NaN" : "Inf");
      if (b[p - 1] == 'f' && p < end && b[p] == 'i') {
        word("inity");
      }
      return;
    }
    int first = p;
    digits();
    if (p - first > 1 && b[first] == '0') {
      throw UNLIKE;
    }
    integerEnd = p;
    int fraction = 0;
    boolean isTiny = false;
    if (p < end && b[p] == '.') {
      p++;
      digits();
      fraction = p - integerEnd - 1;
      isTiny = fraction >= TINY;
    }
    if (p < end && (b[p] | 0x20) == 'e') {
      p++;
      boolean isNegative = p < end && b[p] == '-';
      if (isNegative || p < end && b[p] == '+') {
        p++;
      }
      int start = p;
      digits();
      long exponent = 0;
      for (int at = start; at < p; at++) {
        exponent = Math.min(10 * exponent + b[at] - '0', 1_000_000);
      }
      if (!isNegative && exponent > 308 + Math.min(fraction, 17)) {
        throw UNLIKE;
      }
      isTiny |= isNegative && exponent >= TINY;
    }
    if (isTiny && hasDecimals) {
      throw UNLIKE;
    }
  }

  private void digits() throws Unlike {
    int first = p;
    while (p < end && b[p] >= '0' && b[p] <= '9') {
      p++;
    }
    if (p == first) {
      throw UNLIKE;
    }
  }

  /** Any value, however deep: a bit for each level says whether it is an object. */
  private void skip() throws Unlike {
    int depth = 0;
    long[] objects = null;
    long top = 0;
    for (; ; ) {
      if (p >= end) {
        throw UNLIKE;
      }
      byte c = b[p];
      if (c == '{' || c == '[') {
        p++;
        blanks();
        boolean isObject = c == '{';
        if (p < end && b[p] == (isObject ? '}' : ']')) {
          p++;
        } else {
          if (depth > 0 && depth % 64 == 0) {
            objects = objects == null ? new long[8] : objects;
            if (depth / 64 > objects.length) {
              objects = Arrays.copyOf(objects, 2 * objects.length);
            }
            objects[depth / 64 - 1] = top;
          }
          depth++;
          top = top << 1 | (isObject ? 1 : 0);
          if (isObject) {
            skipName();
          }
          continue;
        }
      } else {
        scalar(c);
      }
      while (depth > 0 && isOver((top & 1) == 1 ? '}' : ']')) {
        depth--;
        top = depth > 0 && depth % 64 == 0 ? objects[depth / 64 - 1] : top >>> 1;
      }
      if (depth == 0) {
        return;
      }
      if ((top & 1) == 1) {
        skipName();
      }
    }
  }

  private void skipName() throws Unlike {
    need('"');
    string();
    blanks();
    need(':');
    blanks();
  }

  private void scalar(byte c) throws Unlike {
    switch (c) {
      case '"':
        p++;
        string();
        break;
      case 't':
        word("true");
        break;
      case 'f':
        word("false");
        break;
      case 'n':
        word("null");
        break;
      default:
        number();
    }
  }

  /** From after a value to the next one, or after the end of all. */
  private boolean isOver(char close) throws Unlike {
    blanks();
    if (p >= end) {
      throw UNLIKE;
    }
    byte c = b[p++];
    if (c == close) {
      return true;
    }
    if (c != ',') {
      throw UNLIKE;
    }
    blanks();
    return false;
  }

  /**
   * From after the opening quote to after the closing one; sets where the text is.
   *
   * @return whether it may hold bytes that are not ASCII
   */
  private boolean string() throws Unlike {
    int from = p;
    boolean isEscaped = false;
    boolean isWide = false;
    for (; ; ) {
      skipPlain();
      if (p >= end) {
        throw UNLIKE;
      }
      byte c = b[p];
      if (c == '"') {
        break;
      }
      p++;
      if (c == '\\') {
        isEscaped = true;
        escape();
      } else if (c < 0) {
        isWide = true;
      } else if (c < ' ') {
        throw UNLIKE;
      }
    }
    text = b;
    textFrom = from;
    textTo = p++;
    if (isEscaped) {
      unescape();
    }
    return isWide || isEscaped;
  }

  /** Eight bytes at a time, to the first that is not plain ASCII, or to the last seven. */
  private void skipPlain() {
    while (p + 8 <= end) {
      long word = Platform.getLong(b, Platform.BYTE_ARRAY_OFFSET + p);
      word = IS_LITTLE_ENDIAN ? word : Long.reverseBytes(word);
      long quote = word ^ QUOTES;
      long slash = word ^ SLASHES;
      long hit =
          (((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | (word - BLANKS) | word) & HIGH;
      if (hit != 0) {
        p += Long.numberOfTrailingZeros(hit) >>> 3;
        return;
      }
      p += 8;
    }
  }

  /** After a backslash: checks, and goes on. */
  private void escape() throws Unlike {
    if (p >= end) {
      throw UNLIKE;
    }
    byte c = b[p++];
    if (c != 'u') {
      if (c < 0 || "\"\\/bfnrt".indexOf(c) < 0) {
        throw UNLIKE;
      }
      return;
    }
    int unit = unit();
    if (unit >= 0xD800 && unit <= 0xDFFF) {
      if (unit > 0xDBFF || end - p < 6 || b[p] != '\\' || b[p + 1] != 'u') {
        throw UNLIKE;
      }
      p += 2;
      int low = unit();
      if (low < 0xDC00 || low > 0xDFFF) {
        throw UNLIKE;
      }
    }
  }

  private int unit() throws Unlike {
    if (end - p < 4) {
      throw UNLIKE;
    }
    int value = 0;
    for (int left = 4; left > 0; left--) {
      int digit = b[p] < 0 ? -1 : Character.digit(b[p], 16);
      if (digit < 0) {
        throw UNLIKE;
      }
      value = value << 4 | digit;
      p++;
    }
    return value;
  }

  /** Escapes are at least as long as what they stand for. */
  private void unescape() throws Unlike {
    int size = textTo - textFrom;
    if (scratch.length < size) {
      scratch = new byte[2 * size];
    }
    int after = p;
    int to = 0;
    for (p = textFrom; p < textTo; ) {
      byte c = b[p++];
      if (c == '\\') {
        c = b[p++];
        if (c == 'u') {
          to = put(unit(), to);
          continue;
        }
        int special = "bfnrt".indexOf(c);
        c = special < 0 ? c : (byte) "\b\f\n\r\t".charAt(special);
      }
      scratch[to++] = c;
    }
    p = after;
    text = scratch;
    textFrom = 0;
    textTo = to;
  }

  private int put(int unit, int to) throws Unlike {
    int point = unit;
    if (unit >= 0xD800 && unit <= 0xDBFF) {
      p += 2;
      point = Character.toCodePoint((char) unit, (char) unit());
    }
    if (point < 0x80) {
      scratch[to] = (byte) point;
      return to + 1;
    }
    int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    scratch[to] = (byte) ((more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0) | point >> 6 * more);
    for (int left = more; left > 0; left--) {
      scratch[to + 1 + more - left] = (byte) (0x80 | point >> 6 * (left - 1) & 0x3F);
    }
    return to + 1 + more;
  }

  private void word(String word) throws Unlike {
    if (end - p < word.length()) {
      throw UNLIKE;
    }
    for (int at = 0; at < word.length(); at++) {
      if (b[p++] != word.charAt(at)) {
        throw UNLIKE;
      }
    }
  }

  private void blanks() {
    while (p < end && (b[p] == ' ' || b[p] == '\n' || b[p] == '\r' || b[p] == '\t')) {
      p++;
    }
  }

  private void need(char c) throws Unlike {
    if (p >= end || b[p] != c) {
      throw UNLIKE;
    }
    p++;
  }

  /** The payload is not what we read here. */
  private static final class Unlike extends Exception {
    Unlike() {
      super(null, null, false, false);
    }
  }
}
