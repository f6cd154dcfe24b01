package onceflow.source;

import java.util.ArrayDeque;

/** Where a consumer is in one partition, and what it has fetched there, for one stream. */
final class Place {
  /** As `Reading`: no other stream moves it. */
  final String stream;

  final ArrayDeque chunks = new ArrayDeque();
  long bytes = 0;

  /** Before it, nothing is here. */
  long head;

  /** Up to here, everything is here, or was. */
  long fetched;

  boolean isNew = true;
  boolean isLent = false;

  /** Whether the consumer has yet to go to `fetched`. */
  boolean isMoved = false;

  boolean isPaused = false;

  /** Where the log begins and ends, if a broker said that it does not have an offset. */
  long[] bounds = null;

  /** What a broker has said, if that will pass. */
  String trouble = null;

  long usedAt = System.nanoTime();

  Place(String stream, long at) {
    this.stream = stream;
    head = at;
    fetched = at;
  }

  boolean isNear(long at, long skip) {
    return bounds == null && head <= at && at - fetched < skip;
  }

  void goTo(long at) {
    chunks.clear();
    bytes = 0;
    head = at;
    fetched = at;
    isMoved = true;
    isNew = false;
    bounds = null;
  }

  void add(Chunk chunk) {
    chunks.add(chunk);
    bytes += chunk.bytes;
    fetched = chunk.next;
  }

  Chunk poll() {
    Chunk first = (Chunk) chunks.poll();
    bytes -= first.bytes;
    head = first.next;
    return first;
  }

  void putBack(Chunk chunk, long at) {
    chunks.addFirst(chunk);
    bytes += chunk.bytes;
    head = at;
  }
}
