package onceflow.decoders;

/** A payload cannot be decoded. Without a stack trace: one bad record in two must stay cheap. */
final class PayloadException extends Exception {
  PayloadException(String reason) {
    super(reason, null, false, false);
  }
}
