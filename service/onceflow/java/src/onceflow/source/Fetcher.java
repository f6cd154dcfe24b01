package onceflow.source;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.spark.SparkEnv;

/**
 * A consumer that outlives the tasks that read from it, and the thread that fetches ahead with it.
 *
 * <p>It goes on fetching between two batches, so the next one is often here already. What waits is
 * bounded in bytes: a partition that has its share is paused. Each partition is read by one task at
 * a time, and for one stream; where two tasks read parts of one partition, or two streams read it,
 * each has a consumer. Partitions are assigned by hand; there is no group, no commit, and no offset
 * to fall back to. It ends with Spark.
 */
final class Fetcher implements Runnable {
  /**
   * Bytes that may wait for all partitions of all consumers together, besides one fetch of each.
   */
  private static final long MAX_BYTES =
      Math.min(64L * 1024 * 1024, Runtime.getRuntime().maxMemory() / 16);

  /** Offsets to pass over instead of jumping to another place of the log. */
  private static final long MAX_SKIP = 10000;

  /** A partition is kept for this long after its last task, and so is a consumer. */
  private static final long KEPT_NS = TimeUnit.SECONDS.toNanos(60);

  /** Without a task for this long, it asks the brokers for nothing until one comes. */
  private static final long REST_NS = TimeUnit.SECONDS.toNanos(2);

  /** Without progress for this long, the brokers are asked why. */
  private static final long LOOK_NS = TimeUnit.SECONDS.toNanos(1);

  private static final Duration POLL = Duration.ofMillis(200);
  private static final Duration ANSWER = Duration.ofSeconds(30);
  private static final long PAUSE_MS = 100;

  /** Between two looks whether a consumer that rests is still needed. A task wakes it. */
  private static final long IDLE_MS = 1000;

  /** What a record takes besides its bytes. */
  private static final int OVERHEAD = 150;

  /** Changed by one thread at a time, which holds it. */
  private static final List POOL = new CopyOnWriteArrayList();

  private final Reading reading;

  /** Spark's, with which it ends: one that starts later in this JVM begins with nothing. */
  private final SparkEnv spark = SparkEnv.get();

  private final KafkaConsumer consumer;
  private final TopicIds ids;
  private final Map places = new HashMap();
  private Set assigned = new HashSet();
  private Throwable failure = null;

  private Fetcher(Reading reading) {
    this.reading = reading;
    ids = new TopicIds(reading.client);
    try {
      consumer = Clients.consumer(reading.client);
    } catch (KafkaException error) {
      throw Troubles.cannotMakeClient(reading.client, error);
    }
  }

  /** A consumer for these ranges, of which no other task reads one until it is given back. */
  static Fetcher lease(Reading reading, Split[] splits) {
    synchronized (POOL) {
      for (int at = 0; at < POOL.size(); at++) {
        Fetcher known = (Fetcher) POOL.get(at);
        if (known.takes(reading, splits)) {
          return known;
        }
      }
      Fetcher made = new Fetcher(reading);
      made.takes(reading, splits);
      POOL.add(made);
      Thread thread = new Thread(made, "onceflow-fetcher");
      thread.setDaemon(true);
      thread.start();
      return made;
    }
  }

  synchronized boolean takes(Reading wanted, Split[] splits) {
    if (failure != null
        || spark != SparkEnv.get()
        || !wanted.client.equals(reading.client)
        || !wanted.secretsDigest.equals(reading.secretsDigest)) {
      return false;
    }
    for (int at = 0; at < splits.length; at++) {
      Place place = (Place) places.get(splits[at].place);
      if (place != null && (place.isLent || !place.stream.equals(wanted.stream))) {
        return false;
      }
    }
    for (int at = 0; at < splits.length; at++) {
      Place place = (Place) places.get(splits[at].place);
      if (place == null) {
        place = new Place(wanted.stream, splits[at].start);
        places.put(splits[at].place, place);
      }
      place.isLent = true;
    }
    return true;
  }

  synchronized void giveBack(Split[] splits) {
    for (int at = 0; at < splits.length; at++) {
      Place place = (Place) places.get(splits[at].place);
      if (place != null) {
        place.isLent = false;
        place.usedAt = System.nanoTime();
      }
    }
  }

  /** Goes to the start of each range, or a little before it; records between are skipped. */
  void goTo(Split[] splits) {
    List moved = new ArrayList();
    synchronized (this) {
      for (int at = 0; at < splits.length; at++) {
        Place place = (Place) places.get(splits[at].place);
        if (place.isNew || !place.isNear(splits[at].start, MAX_SKIP)) {
          place.goTo(splits[at].start);
          moved.add(splits[at]);
        }
      }
      notifyAll();
    }
    if (!moved.isEmpty()) {
      consumer.wakeup();
      // The first fetch is on its way meanwhile.
      ids.check(moved);
    }
  }

  /**
   * The next records of a range, of which some lie before it, or beyond its end.
   *
   * @return a chunk that decides offset `at`
   */
  Chunk take(Split split, long at, long patienceMs) {
    long begin = System.nanoTime();
    long patience = TimeUnit.MILLISECONDS.toNanos(patienceMs);
    long due = begin + Math.min(LOOK_NS, patience / 4);
    String found = "no answer to fetches from " + reading.client.get("bootstrap.servers");
    while (true) {
      Chunk next = poll(split, at);
      if (next != null) {
        return next;
      }
      long now = System.nanoTime();
      if (now - begin > patience) {
        throw Troubles.noProgress(split, at, patienceMs, trouble(split, found));
      }
      if (now > due) {
        long waitNs = Math.min(patience / 4, begin + patience - now);
        ids.checkWithin(Collections.singletonList(split), waitNs);
        long stable = LogEnd.emptyUpTo(reading.client, split.place, at, waitNs);
        if (stable >= split.end) {
          return new Chunk(Collections.emptyList(), split.end, 0);
        }
        if (stable != LogEnd.UNKNOWN) {
          found = "a last stable offset of " + stable;
        }
        due = System.nanoTime() + patience / 4;
      }
    }
  }

  /** Waits a little. Null if nothing is here. */
  synchronized Chunk poll(Split split, long at) {
    Place place = (Place) places.get(split.place);
    if (place.chunks.isEmpty() && failure == null && place.bounds == null) {
      try {
        wait(PAUSE_MS);
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException("the task is cancelled", error);
      }
    }
    while (!place.chunks.isEmpty()) {
      Chunk first = place.poll();
      if (place.isPaused && place.bytes <= share() / 2) {
        consumer.wakeup();
      }
      if (first.next > at) {
        place.trouble = null;
        return first;
      }
    }
    if (failure != null) {
      throw Troubles.cannotRead(split, failure);
    }
    if (place.bounds != null) {
      Troubles.checkExistence(split, at, place.bounds[0], place.bounds[1]);
      place.goTo(at);
      notifyAll();
    }
    return null;
  }

  /** Takes back a chunk that reaches beyond the range of its task. */
  synchronized void putBack(Split split, Chunk chunk, long at) {
    ((Place) places.get(split.place)).putBack(chunk, at);
  }

  synchronized String trouble(Split split, String otherwise) {
    String told = ((Place) places.get(split.place)).trouble;
    return told == null ? otherwise : told;
  }

  public void run() {
    try {
      while (steer()) {
        fetch();
      }
    } catch (Throwable error) {
      fail(error);
    } finally {
      consumer.close(CloseOptions.timeout(Duration.ofSeconds(1)));
      ids.close();
    }
  }

  /** False if no task has used it for long. */
  private boolean steer() {
    synchronized (POOL) {
      synchronized (this) {
        dropUnused();
        if (places.isEmpty()) {
          POOL.remove(this);
          return false;
        }
        assign();
        return true;
      }
    }
  }

  private void dropUnused() {
    long now = System.nanoTime();
    Iterator all = places.values().iterator();
    while (all.hasNext()) {
      Place place = (Place) all.next();
      boolean isOver = now - place.usedAt > KEPT_NS || spark != SparkEnv.get();
      if (!place.isLent && isOver) {
        all.remove();
      }
    }
  }

  private void assign() {
    Set wanted = new HashSet();
    Iterator all = places.entrySet().iterator();
    while (all.hasNext()) {
      Map.Entry each = (Map.Entry) all.next();
      Place place = (Place) each.getValue();
      if (!place.isNew && place.bounds == null) {
        wanted.add(each.getKey());
      }
    }
    if (!wanted.equals(assigned)) {
      consumer.assign(wanted);
      assigned = wanted;
    }
    all = assigned.iterator();
    while (all.hasNext()) {
      TopicPartition at = (TopicPartition) all.next();
      Place place = (Place) places.get(at);
      Set one = new HashSet();
      one.add(at);
      if (place.isMoved) {
        consumer.seek(at, place.fetched);
        place.isMoved = false;
      }
      boolean isFull = place.bytes >= share();
      if (isFull && !place.isPaused) {
        consumer.pause(one);
        place.isPaused = true;
      } else if (place.isPaused && place.bytes <= share() / 2) {
        consumer.resume(one);
        place.isPaused = false;
      }
    }
  }

  private long share() {
    return MAX_BYTES / Math.max(1, POOL.size() * places.size());
  }

  private void fetch() throws InterruptedException {
    if (rests()) {
      return;
    }
    try {
      add(consumer.poll(POLL));
    } catch (WakeupException error) {
      return;
    } catch (InvalidOffsetException error) {
      lookAtLogs(error.partitions());
    } catch (RetriableException error) {
      note(error);
    }
  }

  /** True after a wait in which nothing was fetched, as no task reads now. */
  synchronized boolean rests() throws InterruptedException {
    if (assigned.isEmpty()) {
      wait(PAUSE_MS);
      return true;
    }
    long now = System.nanoTime();
    Iterator all = places.values().iterator();
    while (all.hasNext()) {
      Place place = (Place) all.next();
      if (place.isLent || now - place.usedAt < REST_NS) {
        return false;
      }
    }
    wait(IDLE_MS);
    return true;
  }

  synchronized void add(ConsumerRecords found) {
    Iterator all = found.nextOffsets().entrySet().iterator();
    while (all.hasNext()) {
      Map.Entry each = (Map.Entry) all.next();
      TopicPartition at = (TopicPartition) each.getKey();
      Place place = (Place) places.get(at);
      long next = ((OffsetAndMetadata) each.getValue()).offset();
      // What was fetched for a place that a task has left meanwhile is of no use.
      if (place == null || place.isMoved || place.bounds != null || next <= place.fetched) {
        continue;
      }
      List records = found.records(at);
      if (!records.isEmpty() && ((ConsumerRecord) records.get(0)).offset() < place.fetched) {
        throw new SourceException(
            "InvariantError", "a consumer yields what it was sent for: " + at + " " + next);
      }
      place.add(new Chunk(records, next, bytesOf(records)));
    }
    notifyAll();
  }

  private static long bytesOf(List records) {
    long bytes = 0;
    for (int at = 0; at < records.size(); at++) {
      ConsumerRecord record = (ConsumerRecord) records.get(at);
      bytes += OVERHEAD + Math.max(0, record.serializedKeySize());
      bytes += Math.max(0, record.serializedValueSize()) + bytesOf(record.headers().toArray());
    }
    return bytes;
  }

  private static long bytesOf(Header[] headers) {
    long bytes = 0;
    for (int at = 0; at < headers.length; at++) {
      byte[] value = headers[at].value();
      bytes += headers[at].key().length() + (value == null ? 0 : value.length);
    }
    return bytes;
  }

  /** Finds out where the logs begin and end of which a broker does not know an offset. */
  private void lookAtLogs(Collection asked) throws InterruptedException {
    try {
      Map begins = consumer.beginningOffsets(asked, ANSWER);
      Map ends = consumer.endOffsets(asked, ANSWER);
      synchronized (this) {
        Iterator all = asked.iterator();
        while (all.hasNext()) {
          Object at = all.next();
          Place place = (Place) places.get(at);
          if (place != null && !place.isMoved) {
            long begin = ((Long) begins.get(at)).longValue();
            place.bounds = new long[] {begin, ((Long) ends.get(at)).longValue()};
          }
        }
        notifyAll();
      }
    } catch (WakeupException error) {
      return;
    } catch (RetriableException error) {
      note(error);
    }
  }

  synchronized void note(KafkaException error) throws InterruptedException {
    Iterator all = places.values().iterator();
    while (all.hasNext()) {
      ((Place) all.next()).trouble = Troubles.text(error);
    }
    wait(PAUSE_MS);
  }

  private void fail(Throwable error) {
    synchronized (POOL) {
      POOL.remove(this);
    }
    synchronized (this) {
      failure = error;
      notifyAll();
    }
  }
}
