package onceflow.decoders;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;

/** From text to a value of a scalar type, as Arrow's casts read it, with their complaints. */
final class Scalars {
  /** Of Arrow's decimals. */
  private static final int MAX_DIGITS = 38;

  private Scalars() {}

  /** Writes a text that is not empty to a row. */
  static void write(String text, Column column, WritableColumnVector vector, int row)
      throws PayloadException {
    switch (column.kind) {
      case Column.BOOLEAN:
        vector.putBoolean(row, truth(text));
        break;
      case Column.BYTE:
        vector.putByte(row, (byte) whole(text, 8));
        break;
      case Column.SHORT:
        vector.putShort(row, (short) whole(text, 16));
        break;
      case Column.INT:
        vector.putInt(row, (int) whole(text, 32));
        break;
      case Column.LONG:
        vector.putLong(row, whole(text, 64));
        break;
      case Column.FLOAT:
        checkFloating(text, "float");
        vector.putFloat(row, isWord(text) ? (float) special(text) : Float.parseFloat(text));
        break;
      case Column.DOUBLE:
        checkFloating(text, "double");
        vector.putDouble(row, isWord(text) ? special(text) : Double.parseDouble(text));
        break;
      case Column.DATE:
        vector.putInt(row, day(text));
        break;
      case Column.MOMENT:
        vector.putLong(row, IsoText.moment(text));
        break;
      case Column.DECIMAL:
        Values.putDecimal(decimal(text, column), column, vector, row);
        break;
      case Column.BINARY:
        byte[] bytes = Base64Text.decode(text);
        vector.putByteArray(row, bytes, 0, bytes.length);
        break;
      default:
        byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
        vector.putByteArray(row, encoded, 0, encoded.length);
    }
  }

  private static PayloadException unlike(String text, String type) {
    return new PayloadException(
        "Failed to parse string: '" + text + "' as a scalar of type " + type);
  }

  private static boolean truth(String text) throws PayloadException {
    boolean isTrue = text.equals("1") || isAscii(text, "true");
    if (!isTrue && !text.equals("0") && !isAscii(text, "false")) {
      throw new PayloadException("Failed to parse value: " + text);
    }
    return isTrue;
  }

  /** Whether two texts are equal but for the case of ASCII letters. */
  private static boolean isAscii(String text, String word) {
    boolean isEqual = text.length() == word.length();
    for (int at = 0; isEqual && at < word.length(); at++) {
      isEqual = text.charAt(at) < 0x80 && (text.charAt(at) | 0x20) == word.charAt(at);
    }
    return isEqual;
  }

  private static long whole(String text, int bits) throws PayloadException {
    PayloadException refused = unlike(text, "int" + bits);
    boolean isHex = text.length() > 2 && text.charAt(0) == '0' && (text.charAt(1) | 0x20) == 'x';
    int first = isHex ? 2 : text.charAt(0) == '-' ? 1 : 0;
    if (first == text.length() || isHex && text.length() - 2 > bits / 4) {
      throw refused;
    }
    for (int at = first; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c >= 0x80 || Character.digit(c, isHex ? 16 : 10) < 0) {
        throw refused;
      }
    }
    if (isHex) {
      return Long.parseUnsignedLong(text.substring(2), 16); // its lowest bits count
    }
    BigInteger value = new BigInteger(text);
    if (value.bitLength() >= bits) {
      throw refused;
    }
    return value.longValue();
  }

  private static void checkFloating(String text, String type) throws PayloadException {
    if (!isWord(text) && numberEnd(text) != text.length()) {
      throw unlike(text, type);
    }
  }

  /** After the sign, whether the text is `nan`, `inf` or `infinity`, as C writes them. */
  private static boolean isWord(String text) {
    String word = text.startsWith("-") || text.startsWith("+") ? text.substring(1) : text;
    if (isAscii(word, "nan") || isAscii(word, "inf") || isAscii(word, "infinity")) {
      return true;
    }
    boolean isTagged = word.length() > 4 && word.charAt(3) == '(' && word.endsWith(")");
    if (!isTagged || !isAscii(word.substring(0, 3), "nan")) {
      return false;
    }
    for (int at = 4; at < word.length() - 1; at++) {
      char c = word.charAt(at);
      if (c >= 0x80 || !Character.isLetterOrDigit(c) && c != '_') {
        return false;
      }
    }
    return true;
  }

  private static double special(String text) {
    if (isNan(text)) {
      return Double.NaN;
    }
    return text.startsWith("-") ? Double.NEGATIVE_INFINITY : Double.POSITIVE_INFINITY;
  }

  private static boolean isNan(String text) {
    int first = text.startsWith("-") || text.startsWith("+") ? 1 : 0;
    return (text.charAt(first) | 0x20) == 'n';
  }

  /** Where the number ends that the text begins with; -1 if there is none. */
  private static int numberEnd(String text) {
    int at = text.startsWith("-") || text.startsWith("+") ? 1 : 0;
    int digits = 0;
    boolean hasPoint = false;
    for (; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c == '.' && !hasPoint) {
        hasPoint = true;
      } else if (c >= '0' && c <= '9') {
        digits++;
      } else {
        break;
      }
    }
    if (digits == 0) {
      return -1;
    }
    if (at < text.length() && (text.charAt(at) | 0x20) == 'e') {
      int first = at + 1;
      if (first < text.length() && (text.charAt(first) == '-' || text.charAt(first) == '+')) {
        first++;
      }
      int end = first;
      while (end < text.length() && text.charAt(end) >= '0' && text.charAt(end) <= '9') {
        end++;
      }
      at = end > first ? end : at;
    }
    return at;
  }

  private static int day(String text) throws PayloadException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    long day = IsoText.quickDay(bytes, 0, bytes.length);
    if (day == IsoText.NONE) {
      throw unlike(text, "date32[day]");
    }
    return (int) day;
  }

  private static BigInteger decimal(String text, Column column) throws PayloadException {
    ExactNumber number;
    try {
      number = ExactNumber.parse(text);
    } catch (PayloadException refused) {
      throw new PayloadException("The string '" + text + "' is not a valid decimal128 number");
    }
    if (number.digits() > MAX_DIGITS || number.power() > MAX_DIGITS) {
      throw new PayloadException("The string '" + text + "' cannot be represented as decimal128");
    }
    BigInteger value;
    try {
      value = number.unscaled(column.scale);
    } catch (PayloadException refused) {
      boolean isWide = number.power() + column.scale >= 0;
      throw new PayloadException(
          isWide
              ? "Decimal value does not fit in precision " + column.precision
              : "Rescaling Decimal value would cause data loss");
    }
    if (value.abs().toString().length() > column.precision) {
      throw new PayloadException("Decimal value does not fit in precision " + column.precision);
    }
    return value;
  }
}
