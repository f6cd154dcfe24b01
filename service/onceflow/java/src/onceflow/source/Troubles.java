package onceflow.source;

import java.io.IOException;
import java.util.Collection;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.oauthbearer.internals.secured.UnretryableException;

/** What a reader reports, in the words of our errors. */
final class Troubles {
  private static final String NEW_GENERATION =
      "start a new generation: name an empty directory as `checkpoint`, and run with"
          + " `--new-generation --reason ...`";

  private Troubles() {}

  static SourceException noProgress(Split split, long at, long patienceMs, String found) {
    return new SourceException(
        "DeadlineError",
        "reading makes no progress: offset "
            + at
            + " of "
            + split.place
            + "; expected all offsets before "
            + split.end
            + " within "
            + patienceMs / 1000
            + " s; found "
            + found
            + "; the task fails and is tried again");
  }

  /** Whether the next offset exists, now that a broker has said that it does not. */
  static void checkExistence(Split split, long at, long begin, long end) {
    if (begin > at) {
      throw new SourceException(
          "CorruptionError",
          "records were deleted before they were read: offsets ["
              + at
              + ", "
              + Math.min(begin, split.end)
              + ") of "
              + split.place
              + "; expected a log that starts at or before "
              + at
              + "; found a log that starts at "
              + begin
              + "; halting rather than leave them out: restore the topic and start again; or, to"
              + " read what is left, "
              + NEW_GENERATION
              + "; and keep records longer (retention.ms, retention.bytes)");
    }
    if (end < at) {
      throw new SourceException(
          "CorruptionError",
          "the log is shorter than what was read of it: "
              + split.place
              + "; expected at least "
              + at
              + " offsets; found a log that ends at "
              + end
              + "; halting; acknowledged records were lost (unclean leader election?)");
    }
  }

  static SourceException isReplaced(String topic, String expected, String found) {
    return new SourceException(
        "CorruptionError",
        "a source topic was deleted and created again: "
            + topic
            + "; expected topic id "
            + expected
            + "; found topic id "
            + found
            + "; halting; its offsets mean other records now: "
            + NEW_GENERATION);
  }

  static SourceException isGone(Collection topics) {
    return new SourceException(
        "CorruptionError",
        "a topic that is being read no longer exists: "
            + String.join(", ", new TreeSet(topics))
            + "; halting; if everything in it was read, name it under `retired` of the source and"
            + " start again; otherwise restore it, or "
            + NEW_GENERATION);
  }

  static SourceException badRecord(Split split, long offset, String reason) {
    return new SourceException(
        "RecordError",
        "a record cannot be decoded: offset "
            + offset
            + " of "
            + split.place
            + "; found "
            + reason
            + "; stopping; nothing of this batch was written");
  }

  /** If a name or a token cannot be had at the moment, the next try may get it. */
  static SourceException cannotMakeClient(Map client, KafkaException error) {
    boolean isPassing = isPassing(error);
    return new SourceException(
        isPassing ? "RetriableError" : "ConfigError",
        "cannot make a Kafka client: "
            + client.get("bootstrap.servers")
            + "; found "
            + text(innermost(error))
            + (isPassing ? "; the task is tried again" : "; correct the client properties"),
        error);
  }

  private static boolean isPassing(KafkaException error) {
    boolean isPassing = false;
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof UnretryableException) {
        return false;
      }
      isPassing |=
          cause instanceof IOException || ("" + cause.getMessage()).startsWith("No resolvable");
    }
    return isPassing;
  }

  static SourceException cannotAsk(Collection topics, Throwable error) {
    return failure("cannot look up topics: " + String.join(", ", new TreeSet(topics)), error);
  }

  static SourceException cannotRead(Split split, Throwable error) {
    if (error instanceof SourceException) {
      return (SourceException) error;
    }
    return failure("cannot read: " + split.place, error);
  }

  static String text(Throwable error) {
    Errors code = Errors.forException(error);
    String name =
        code == Errors.UNKNOWN_SERVER_ERROR ? error.getClass().getSimpleName() : "" + code;
    return name + ": " + error.getMessage();
  }

  private static SourceException failure(String what, Throwable error) {
    Throwable cause = innermost(error);
    String kind = "RetriableError";
    if (cause instanceof AuthenticationException
        || cause instanceof AuthorizationException
        || cause instanceof InvalidTopicException
        || cause instanceof UnsupportedVersionException
        || cause instanceof ConfigException) {
      kind = "ConfigError";
    } else if (cause instanceof CorruptRecordException) {
      kind = "CorruptionError";
    }
    return new SourceException(kind, what + "; found " + text(cause), error);
  }

  /** The first cause that is Kafka's own, as it wraps them. */
  private static Throwable innermost(Throwable error) {
    Throwable found = error;
    while (found.getCause() instanceof KafkaException) {
      found = found.getCause();
    }
    return found;
  }
}
