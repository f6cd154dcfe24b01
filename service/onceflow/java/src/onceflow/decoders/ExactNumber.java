package onceflow.decoders;

import java.math.BigInteger;

/**
 * A decimal number of any length, as Python's `Decimal` keeps it: -0 and 1.50 stay what they are.
 */
final class ExactNumber {
  private static final String SYNTAX = "[<class 'decimal.ConversionSyntax'>]";
  private static final String INVALID = "[<class 'decimal.InvalidOperation'>]";
  private static final String INEXACT = "[<class 'decimal.Inexact'>]";
  private static final long MAX_EXPONENT = 999999999999999999L;
  private static final long MIN_EXPONENT = -1999999999999999997L;

  /** Digits that a result may have: what Arrow's widest decimal holds. */
  private static final int MAX_DIGITS = 76;

  /** Of what Arrow reads: digits from the first that is not a zero, and zeros to append. */
  private static final int MAX_QUICK = 38;

  private final boolean isNegative;

  /** Without leading zeros, but "0" for zero. */
  private final String digits;

  private final long exponent;

  private ExactNumber(boolean isNegative, String digits, long exponent) {
    this.isNegative = isNegative;
    this.digits = digits;
    this.exponent = exponent;
  }

  /** From digits with a point or an exponent, a sign, and nothing else. */
  static ExactNumber parse(String text) throws PayloadException {
    int at = 0;
    boolean isNegative = false;
    if (at < text.length() && (text.charAt(at) == '-' || text.charAt(at) == '+')) {
      isNegative = text.charAt(at++) == '-';
    }
    StringBuilder digits = new StringBuilder();
    long fraction = -1;
    for (; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c == '.' && fraction < 0) {
        fraction = 0;
      } else if (c >= '0' && c <= '9') {
        digits.append(c);
        fraction += fraction < 0 ? 0 : 1;
      } else {
        break;
      }
    }
    if (digits.length() == 0) {
      throw new PayloadException(SYNTAX);
    }
    long exponent = at < text.length() ? exponent(text, at) : 0;
    return of(isNegative, digits.toString(), exponent - Math.max(fraction, 0));
  }

  private static long exponent(String text, int from) throws PayloadException {
    int at = from;
    if ((text.charAt(at++) | 0x20) != 'e') {
      throw new PayloadException(SYNTAX);
    }
    boolean isNegative = false;
    if (at < text.length() && (text.charAt(at) == '-' || text.charAt(at) == '+')) {
      isNegative = text.charAt(at++) == '-';
    }
    if (at == text.length()) {
      throw new PayloadException(SYNTAX);
    }
    long value = 0;
    for (; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c < '0' || c > '9') {
        throw new PayloadException(SYNTAX);
      }
      value = value > MAX_EXPONENT ? value : value * 10 + c - '0';
    }
    return isNegative ? -value : value;
  }

  private static ExactNumber of(boolean isNegative, String text, long exponent)
      throws PayloadException {
    int first = 0;
    while (first < text.length() - 1 && text.charAt(first) == '0') {
      first++;
    }
    String digits = text.substring(first);
    if (exponent + digits.length() - 1 > MAX_EXPONENT || exponent < MIN_EXPONENT) {
      throw new PayloadException(INVALID);
    }
    return new ExactNumber(isNegative, digits, exponent);
  }

  /** From a text column: blanks around, underscores between, and digits of any script. */
  static ExactNumber ofText(String text) throws PayloadException {
    String plain = plainDigits(text).replace("_", "");
    checkSpecial(plain);
    return parse(plain);
  }

  /** Without blanks around, and with digits of ASCII for those of any script. */
  static String plainDigits(String text) {
    StringBuilder plain = new StringBuilder();
    int from = 0;
    int to = text.length();
    while (from < to && Texts.isSpace(text.charAt(from))) {
      from++;
    }
    while (to > from && Texts.isSpace(text.charAt(to - 1))) {
      to--;
    }
    for (int at = from; at < to; ) {
      int point = text.codePointAt(at);
      at += Character.charCount(point);
      int digit =
          Character.getType(point) == Character.DECIMAL_DIGIT_NUMBER
              ? Character.digit(point, 10)
              : -1;
      plain.appendCodePoint(digit >= 0 ? '0' + digit : point);
    }
    return plain.toString();
  }

  /** Refuses what is a number to Python's decimals, but not to a column. */
  private static void checkSpecial(String text) throws PayloadException {
    boolean isNegative = text.startsWith("-");
    String name = isNegative || text.startsWith("+") ? text.substring(1) : text;
    String lower = asciiLower(name);
    if (lower.equals("inf") || lower.equals("infinity")) {
      throw new PayloadException(INVALID);
    }
    boolean isSignalling = lower.startsWith("snan");
    if (!isSignalling && !lower.startsWith("nan")) {
      return;
    }
    String payload = name.substring(isSignalling ? 4 : 3);
    for (int at = 0; at < payload.length(); at++) {
      if (payload.charAt(at) < '0' || payload.charAt(at) > '9') {
        throw new PayloadException(SYNTAX);
      }
    }
    if (isSignalling) {
      throw new PayloadException(INVALID);
    }
    String shown = (isNegative ? "-NaN" : "NaN") + payload.replaceFirst("^0+", "");
    throw new PayloadException("The string '" + shown + "' is not a valid decimal128 number");
  }

  private static String asciiLower(String text) {
    StringBuilder lower = new StringBuilder(text);
    for (int at = 0; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c >= 'A' && c <= 'Z') {
        lower.setCharAt(at, (char) (c + 32));
      }
    }
    return lower.toString();
  }

  /** Whether Arrow, too, reads this text of a number. */
  static boolean isQuick(String text) {
    int digits = 0;
    long power = 0;
    int places = 0;
    boolean isFraction = false;
    for (int at = 0; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c == '.') {
        isFraction = true;
      } else if (c == 'e' || c == 'E') {
        try {
          long exponent = exponent(text, at);
          if (exponent <= -ByteJson.TINY) {
            return false;
          }
          power += exponent;
        } catch (PayloadException refused) {
          return false;
        }
        break;
      } else if (c >= '0' && c <= '9') {
        digits += c != '0' || digits > 0 || isFraction ? 1 : 0;
        places += isFraction ? 1 : 0;
      }
    }
    return digits <= MAX_QUICK && power - places <= MAX_QUICK && places < ByteJson.TINY;
  }

  /** A whole number. */
  static ExactNumber of(BigInteger value) throws PayloadException {
    return of(value.signum() < 0, value.abs().toString(), 0);
  }

  /** The number of these digits, of which `scale` come after the point. */
  static ExactNumber of(BigInteger unscaled, int scale) {
    return new ExactNumber(unscaled.signum() < 0, unscaled.abs().toString(), -scale);
  }

  /** The number times 10 to the power of `scale`. Refuses to round. */
  BigInteger unscaled(int scale) throws PayloadException {
    if (digits.equals("0")) {
      return BigInteger.ZERO;
    }
    long shift = exponent + scale;
    if (digits.length() + shift > MAX_DIGITS) {
      throw new PayloadException(INVALID);
    }
    String kept = digits;
    if (shift < 0) {
      int cut = (int) Math.max(0, digits.length() + shift);
      for (int at = cut; at < digits.length(); at++) {
        if (digits.charAt(at) != '0') {
          throw new PayloadException(INEXACT);
        }
      }
      kept = digits.substring(0, cut);
    }
    BigInteger value = new BigInteger(kept);
    value = shift > 0 ? value.multiply(BigInteger.TEN.pow((int) shift)) : value;
    return isNegative ? value.negate() : value;
  }

  /** How many digits it has, without leading zeros. */
  int digits() {
    return digits.length();
  }

  /** The power of ten by which its digits count. */
  long power() {
    return exponent;
  }

  double doubleValue() {
    return Double.parseDouble((isNegative ? "-" : "") + digits + "E" + exponent);
  }

  public String toString() {
    StringBuilder text = new StringBuilder(isNegative ? "-" : "");
    long point = exponent + digits.length();
    if (exponent <= 0 && point > -6) {
      if (point <= 0) {
        text.append("0.");
        for (long zeros = point; zeros < 0; zeros++) {
          text.append('0');
        }
        return text.append(digits).toString();
      }
      text.append(digits, 0, (int) point);
      return exponent == 0
          ? text.toString()
          : text.append('.').append(digits, (int) point, digits.length()).toString();
    }
    text.append(digits.charAt(0));
    if (digits.length() > 1) {
      text.append('.').append(digits, 1, digits.length());
    }
    return text.append(point > 0 ? "E+" : "E").append(point - 1).toString();
  }
}
