package onceflow.source;

import java.util.List;

/** Records of one partition that were fetched together, up to a decided offset. */
final class Chunk {
  /** In the order of their offsets. */
  final List records;

  /** Everything before it is decided: records, and what has none. */
  final long next;

  final long bytes;

  Chunk(List records, long next, long bytes) {
    this.records = records;
    this.next = next;
    this.bytes = bytes;
  }
}
