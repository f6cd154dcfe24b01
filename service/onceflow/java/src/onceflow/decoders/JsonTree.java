package onceflow.decoders;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A whole JSON document, as Python's parser reads it: for what ByteJson refuses, and for its
 * reason.
 *
 * <p>Values are null, Boolean, BigInteger, ExactNumber, Double (NaN and infinities only), String,
 * List and Map. A key that is there twice has its last value.
 */
final class JsonTree {
  /** Python's own bound depends on its stack, and is between 900 and 1000. */
  private static final int MAX_DEPTH = 950;

  private static final int MAX_INTEGER_DIGITS = 4300;

  private final String text;
  private int at = 0;

  private JsonTree(String text) {
    this.text = text;
  }

  /** The object that the payload is. */
  static Map parse(byte[] bytes, int from, int to) throws PayloadException {
    Object value;
    try {
      Utf8.check(bytes, from, to);
      value = new JsonTree(new String(bytes, from, to - from, StandardCharsets.UTF_8)).document();
    } catch (PayloadException error) {
      throw new PayloadException("not JSON: " + error.getMessage());
    }
    if (value instanceof Map) {
      return (Map) value;
    }
    throw new PayloadException("expected a JSON object, found " + Texts.typeName(value));
  }

  private Object document() throws PayloadException {
    if (text.startsWith("\uFEFF")) {
      throw wrong("Unexpected UTF-8 BOM (decode using utf-8-sig)", 0);
    }
    skipBlanks();
    Object value = value(0);
    skipBlanks();
    if (at < text.length()) {
      throw wrong("Extra data", at);
    }
    return value;
  }

  private Object value(int depth) throws PayloadException {
    int start = at;
    char c = peek();
    switch (c) {
      case '"':
        at++;
        return string();
      case '{':
        at++;
        return object(depth + 1);
      case '[':
        at++;
        return array(depth + 1);
      case 'n':
        return word("null", null, start);
      case 't':
        return word("true", Boolean.TRUE, start);
      case 'f':
        return word("false", Boolean.FALSE, start);
      case 'N':
        return word("NaN", Double.valueOf(Double.NaN), start);
      case 'I':
        return word("Infinity", Double.valueOf(Double.POSITIVE_INFINITY), start);
      case '-':
        if (text.startsWith("-Infinity", at)) {
          return word("-Infinity", Double.valueOf(Double.NEGATIVE_INFINITY), start);
        }
        return number();
      default:
        return number();
    }
  }

  private Object word(String word, Object value, int start) throws PayloadException {
    if (!text.startsWith(word, at)) {
      throw wrong("Expecting value", start);
    }
    at += word.length();
    return value;
  }

  private Map object(int depth) throws PayloadException {
    checkDepth(depth, "object");
    Map fields = new LinkedHashMap();
    skipBlanks();
    if (peek() == '}') {
      at++;
      return fields;
    }
    for (; ; ) {
      if (peek() != '"') {
        throw wrong("Expecting property name enclosed in double quotes", at);
      }
      at++;
      String name = string();
      skipBlanks();
      if (peek() != ':') {
        throw wrong("Expecting ':' delimiter", at);
      }
      at++;
      skipBlanks();
      fields.put(name, value(depth));
      skipBlanks();
      if (isOver('}')) {
        return fields;
      }
    }
  }

  private List array(int depth) throws PayloadException {
    checkDepth(depth, "array");
    List items = new ArrayList();
    skipBlanks();
    if (peek() == ']') {
      at++;
      return items;
    }
    for (; ; ) {
      items.add(value(depth));
      skipBlanks();
      if (isOver(']')) {
        return items;
      }
    }
  }

  /** Goes on after a comma, or ends. */
  private boolean isOver(char end) throws PayloadException {
    char c = peek();
    if (c != ',' && c != end || at >= text.length()) {
      throw wrong("Expecting ',' delimiter", at);
    }
    at++;
    skipBlanks();
    if (c == end) {
      return true;
    }
    return false;
  }

  private void checkDepth(int depth, String kind) throws PayloadException {
    if (depth > MAX_DEPTH) {
      throw new PayloadException(
          "maximum recursion depth exceeded while decoding a JSON "
              + kind
              + " from a unicode string");
    }
  }

  private Object number() throws PayloadException {
    int start = at;
    int place = at + (peek() == '-' ? 1 : 0);
    int first = place;
    if (charAt(place) == '0') {
      place++;
    } else {
      place = afterDigits(place);
    }
    if (place == first) {
      throw wrong("Expecting value", start);
    }
    int integerEnd = place;
    if (charAt(place) == '.' && afterDigits(place + 1) > place + 1) {
      place = afterDigits(place + 1);
    }
    if ((charAt(place) | 0x20) == 'e') {
      char sign = charAt(place + 1);
      int digits = place + (sign == '-' || sign == '+' ? 2 : 1);
      place = afterDigits(digits) > digits ? afterDigits(digits) : place;
    }
    at = place;
    String written = text.substring(start, place);
    if (place > integerEnd) {
      return ExactNumber.parse(written);
    }
    if (integerEnd - first > MAX_INTEGER_DIGITS) {
      throw new PayloadException(
          "Exceeds the limit (4300 digits) for integer string conversion: value has "
              + (integerEnd - first)
              + " digits; use sys.set_int_max_str_digits() to increase the limit");
    }
    return new BigInteger(written);
  }

  private int afterDigits(int from) {
    int place = from;
    while (charAt(place) >= '0' && charAt(place) <= '9') {
      place++;
    }
    return place;
  }

  /** From after the opening quote to after the closing one. */
  private String string() throws PayloadException {
    int start = at - 1;
    StringBuilder value = new StringBuilder();
    for (; ; ) {
      if (at >= text.length()) {
        throw wrong("Unterminated string starting at", start);
      }
      char c = text.charAt(at++);
      if (c == '"') {
        return value.toString();
      }
      if (c < 0x20) {
        throw wrong("Invalid control character at", at - 1);
      }
      value.append(c == '\\' ? escape(start) : c);
    }
  }

  private char escape(int start) throws PayloadException {
    if (at >= text.length()) {
      throw wrong("Unterminated string starting at", start);
    }
    char c = text.charAt(at++);
    switch (c) {
      case '"':
      case '\\':
      case '/':
        return c;
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'u':
        return unit();
      default:
        throw wrong("Invalid \\escape", at - 2);
    }
  }

  private char unit() throws PayloadException {
    int value = 0;
    for (int place = at; place < at + 4; place++) {
      char c = charAt(place);
      int digit = c < 0x80 ? Character.digit(c, 16) : -1;
      // Python looks for the quote that must follow, too.
      if (digit < 0 || at + 4 >= text.length()) {
        throw wrong("Invalid \\uXXXX escape", at - 1);
      }
      value = value << 4 | digit;
    }
    at += 4;
    return (char) value;
  }

  private char peek() {
    return charAt(at);
  }

  /** NUL after the end; nothing valid begins with it. */
  private char charAt(int place) {
    return place < text.length() ? text.charAt(place) : (char) 0;
  }

  private void skipBlanks() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') {
      at++;
    }
  }

  private PayloadException wrong(String what, int place) {
    int line = 1;
    int lineStart = 0;
    for (int next = 0; next < place; next++) {
      if (text.charAt(next) == '\n') {
        line++;
        lineStart = next + 1;
      }
    }
    int column = text.codePointCount(lineStart, place) + 1;
    int position = text.codePointCount(0, place);
    return new PayloadException(
        what + ": line " + line + " column " + column + " (char " + position + ")");
  }
}
