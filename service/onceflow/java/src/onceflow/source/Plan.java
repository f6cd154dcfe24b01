package onceflow.source;

/** What Python decides about a stream, in the driver's process; `onceflow.runtime.source.jvm`. */
public interface Plan {
  String initialOffset();

  /** The largest number of records that a batch should have. */
  long limit();

  /** How far the next batch reads; -1 for all that is there. */
  String latestOffset(String start, long limit);

  /** A JSON list of the tasks of a batch; see `Task`. */
  String tasks(String start, String end);

  /** From now on, nothing new is seen. */
  void freeze();

  void commit(String end);

  void stop();
}
