package onceflow.source;

/** An error of `onceflow.errors`: Python finds its class and its words in Spark's text. */
final class SourceException extends RuntimeException {
  SourceException(String kind, String message) {
    super("onceflow.errors." + kind + ": " + message.replace('\n', ' '));
  }

  SourceException(String kind, String message, Throwable cause) {
    super("onceflow.errors." + kind + ": " + message.replace('\n', ' '), cause);
  }
}
