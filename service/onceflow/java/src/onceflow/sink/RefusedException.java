package onceflow.sink;

/** Kafka did not take what a task wrote, so its transaction must not be committed. */
public final class RefusedException extends RuntimeException {
  RefusedException(String message) {
    super(message);
  }

  /** Begins with the class of the error: by it the driver decides what follows. */
  RefusedException(Exception cause) {
    super(cause.getClass().getSimpleName() + ": " + cause.getMessage(), cause);
  }
}
