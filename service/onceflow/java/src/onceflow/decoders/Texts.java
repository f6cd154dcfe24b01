package onceflow.decoders;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * Values and reasons as Python writes them: reasons are in dead letters, and replays compare them.
 */
final class Texts {
  /** Of a reason: it may quote a whole payload. */
  private static final int MAX_REASON_LENGTH = 200;

  private static final int MAX_DOUBLE_DIGITS = 17;

  /** Of a double without an exponent. */
  private static final int MAX_WHOLE_DIGITS = 16;

  private Texts() {}

  /** The reason with single blanks, cut to its greatest length. */
  static String reason(String text) {
    StringBuilder short_ = new StringBuilder();
    boolean isGap = false;
    for (int at = 0; at < text.length(); ) {
      int point = text.codePointAt(at);
      at += Character.charCount(point);
      if (isSpace(point)) {
        isGap = short_.length() > 0;
        continue;
      }
      if (isGap) {
        short_.append(' ');
        isGap = false;
      }
      short_.appendCodePoint(point);
    }
    int points = short_.codePointCount(0, short_.length());
    return points <= MAX_REASON_LENGTH
        ? short_.toString()
        : short_.substring(0, short_.offsetByCodePoints(0, MAX_REASON_LENGTH));
  }

  /** What Python takes for a blank. */
  static boolean isSpace(int point) {
    return point >= 0x09 && point <= 0x0D
        || point >= 0x1C && point <= 0x20
        || point == 0x85
        || point == 0xA0
        || point > 0xA0 && (Character.isSpaceChar(point));
  }

  /** The value as `repr` writes it. */
  static String shown(Object value) {
    StringBuilder text = new StringBuilder();
    show(value, text);
    return text.toString();
  }

  /** The name of the value's type in Python. */
  static String typeName(Object value) {
    if (value == null) {
      return "NoneType";
    }
    if (value instanceof Boolean) {
      return "bool";
    }
    if (value instanceof BigInteger) {
      return "int";
    }
    if (value instanceof Double) {
      return "float";
    }
    return value instanceof ExactNumber ? "Decimal" : value instanceof String ? "str" : "list";
  }

  private static void show(Object value, StringBuilder text) {
    if (value == null) {
      text.append("None");
    } else if (value instanceof Boolean) {
      text.append(((Boolean) value).booleanValue() ? "True" : "False");
    } else if (value instanceof Double) {
      text.append(shown(((Double) value).doubleValue()));
    } else if (value instanceof ExactNumber) {
      text.append("Decimal('").append(value).append("')");
    } else if (value instanceof String) {
      quote((String) value, text);
    } else if (value instanceof byte[]) {
      text.append('b');
      quote(new String((byte[]) value, StandardCharsets.ISO_8859_1), 0x7F, text);
    } else if (value instanceof UUID) {
      text.append("UUID('").append(value).append("')");
    } else if (value instanceof LocalDate) {
      text.append("datetime.date(").append(shown((LocalDate) value)).append(')');
    } else if (value instanceof LocalTime) {
      text.append("datetime.time(").append(shown((LocalTime) value)).append(')');
    } else if (value instanceof LocalDateTime) {
      LocalDateTime moment = (LocalDateTime) value;
      text.append("datetime.datetime(").append(shown(moment.toLocalDate())).append(", ");
      text.append(shown(moment.toLocalTime())).append(')');
    } else if (value instanceof Instant) {
      show(LocalDateTime.ofInstant((Instant) value, ZoneOffset.UTC), text);
      text.setLength(text.length() - 1);
      text.append(", tzinfo=datetime.timezone.utc)");
    } else if (value instanceof List) {
      text.append('[');
      String separator = "";
      for (Iterator each = ((List) value).iterator(); each.hasNext(); separator = ", ") {
        text.append(separator);
        show(each.next(), text);
      }
      text.append(']');
    } else if (value instanceof Map) {
      text.append('{');
      String separator = "";
      for (Iterator each = ((Map) value).entrySet().iterator(); each.hasNext(); separator = ", ") {
        Map.Entry entry = (Map.Entry) each.next();
        text.append(separator);
        show(entry.getKey(), text);
        text.append(": ");
        show(entry.getValue(), text);
      }
      text.append('}');
    } else {
      text.append(value);
    }
  }

  private static String shown(LocalDate day) {
    return day.getYear() + ", " + day.getMonthValue() + ", " + day.getDayOfMonth();
  }

  private static String shown(LocalTime time) {
    int micros = time.getNano() / 1000;
    String seconds = micros > 0 || time.getSecond() > 0 ? ", " + time.getSecond() : "";
    String rest = micros > 0 ? ", " + micros : "";
    return time.getHour() + ", " + time.getMinute() + seconds + rest;
  }

  private static String shown(double number) {
    if (Double.isNaN(number) || Double.isInfinite(number)) {
      return Double.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf";
    }
    String sign = 1 / number < 0 || number < 0 ? "-" : "";
    if (number == 0) {
      return sign + "0.0";
    }
    BigDecimal shortest = shortest(Math.abs(number));
    String digits = shortest.unscaledValue().toString().replaceFirst("0+$", "");
    int point = shortest.precision() - shortest.scale();
    return sign + placed(digits, point);
  }

  /** The shortest number that is read as the same. Java itself finds it since its release 19. */
  private static BigDecimal shortest(double number) {
    BigDecimal exact = new BigDecimal(number);
    for (int digits = 1; digits < MAX_DOUBLE_DIGITS; digits++) {
      BigDecimal near = exact.round(new MathContext(digits, RoundingMode.HALF_EVEN));
      if (near.doubleValue() == number) {
        return near;
      }
      // Above a power of two, what is read as the same reaches further than below.
      BigDecimal above = exact.round(new MathContext(digits, RoundingMode.CEILING));
      if (above.doubleValue() == number) {
        return above;
      }
    }
    return exact.round(new MathContext(MAX_DOUBLE_DIGITS, RoundingMode.HALF_EVEN));
  }

  /** Digits with a point before the one of this place, or with an exponent. */
  private static String placed(String digits, int point) {
    int length = digits.length();
    if (point > MAX_WHOLE_DIGITS || point < -3) {
      String rest = length > 1 ? "." + digits.substring(1) : "";
      String power = (Math.abs(point - 1) < 10 ? "0" : "") + Math.abs(point - 1);
      return digits.charAt(0) + rest + (point > 0 ? "e+" : "e-") + power;
    }
    if (point <= 0) {
      return "0." + "000".substring(0, -point) + digits;
    }
    if (point >= length) {
      return digits + "0".repeat(point - length) + ".0";
    }
    return digits.substring(0, point) + "." + digits.substring(point);
  }

  private static void quote(String value, StringBuilder text) {
    quote(value, Character.MAX_CODE_POINT + 1, text);
  }

  /** Escapes code points from `end` on. */
  private static void quote(String value, int end, StringBuilder text) {
    char quote = value.indexOf('\'') >= 0 && value.indexOf('"') < 0 ? '"' : '\'';
    text.append(quote);
    for (int at = 0; at < value.length(); ) {
      int point = value.codePointAt(at);
      at += Character.charCount(point);
      if (point == quote || point == '\\') {
        text.append('\\').append((char) point);
      } else if (point == '\t') {
        text.append("\\t");
      } else if (point == '\n') {
        text.append("\\n");
      } else if (point == '\r') {
        text.append("\\r");
      } else if (point < end && isPrintable(point)) {
        text.appendCodePoint(point);
      } else {
        text.append(escaped(point));
      }
    }
    text.append(quote);
  }

  /** An escape of the shortest kind that holds the code point. */
  static String escaped(int point) {
    String digits = Integer.toHexString(point);
    int width = point <= 0xFF ? 2 : point <= 0xFFFF ? 4 : 8;
    String kind = width == 2 ? "\\x" : width == 4 ? "\\u" : "\\U";
    return kind + "00000000".substring(0, width - digits.length()) + digits;
  }

  private static boolean isPrintable(int point) {
    if (point >= 0x20 && point < 0x7F) {
      return true;
    }
    switch (Character.getType(point)) {
      case Character.CONTROL:
      case Character.FORMAT:
      case Character.SURROGATE:
      case Character.PRIVATE_USE:
      case Character.UNASSIGNED:
      case Character.LINE_SEPARATOR:
      case Character.PARAGRAPH_SEPARATOR:
      case Character.SPACE_SEPARATOR:
        return false;
      default:
        return true;
    }
  }
}
