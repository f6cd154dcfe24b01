package onceflow.decoders;

import java.math.BigInteger;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

/**
 * Values and reasons as Python writes them: reasons are in dead letters, and replays compare them.
 */
final class Texts {
  /** Of a reason: it may quote a whole payload. */
  private static final int MAX_REASON_LENGTH = 200;

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
      double number = ((Double) value).doubleValue();
      text.append(Double.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf");
    } else if (value instanceof ExactNumber) {
      text.append("Decimal('").append(value).append("')");
    } else if (value instanceof String) {
      quote((String) value, text);
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

  private static void quote(String value, StringBuilder text) {
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
      } else if (isPrintable(point)) {
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
