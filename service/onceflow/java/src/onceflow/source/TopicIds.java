package onceflow.source;

import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Asks the brokers whether topics are still those that a batch was planned for. */
final class TopicIds {
  private static final long ANSWER_NS = TimeUnit.SECONDS.toNanos(30);

  /** A topic that stays unknown this long is gone: a broker may just have started. */
  private static final long GONE_NS = TimeUnit.SECONDS.toNanos(3);

  private static final long PAUSE_MS = 100;

  private final Map client;
  private Admin admin = null;

  TopicIds(Map client) {
    this.client = client;
  }

  /** Refuses ranges of topics that are gone, or were deleted and created again. */
  void check(List splits) {
    check(splits, ANSWER_NS, true);
  }

  /** The same if brokers answer in time; if they do not, nothing is known. */
  void checkWithin(List splits, long waitNs) {
    check(splits, waitNs, false);
  }

  private void check(List splits, long waitNs, boolean mustAnswer) {
    Map expected = new TreeMap();
    for (int at = 0; at < splits.size(); at++) {
      Split split = (Split) splits.get(at);
      if (!split.topicId.isEmpty()) {
        expected.put(split.place.topic(), split.topicId);
      }
    }
    if (expected.isEmpty()) {
      return;
    }
    Map found = found(expected, waitNs, mustAnswer);
    if (found == null) {
      return;
    }
    Iterator all = expected.entrySet().iterator();
    while (all.hasNext()) {
      Map.Entry each = (Map.Entry) all.next();
      TopicDescription topic = (TopicDescription) found.get(each.getKey());
      // Java writes it for addresses; a position has the other alphabet.
      String id = topic.topicId().toString().replace('-', '+').replace('_', '/');
      if (!id.equals(each.getValue())) {
        throw Troubles.isReplaced((String) each.getKey(), (String) each.getValue(), id);
      }
    }
  }

  synchronized void close() {
    if (admin != null) {
      admin.close(Duration.ofSeconds(1));
    }
  }

  synchronized Admin admin() {
    if (admin == null) {
      admin = Clients.admin(client);
    }
    return admin;
  }

  /** Null if there is no answer and need not be one. */
  private Map found(Map expected, long waitNs, boolean mustAnswer) {
    long begin = System.nanoTime();
    while (true) {
      Throwable cause;
      try {
        return (Map)
            admin()
                .describeTopics(expected.keySet())
                .allTopicNames()
                .get(waitNs, TimeUnit.NANOSECONDS);
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException("the task is cancelled", error);
      } catch (ExecutionException error) {
        cause = error.getCause();
      } catch (TimeoutException error) {
        cause = error;
      } catch (KafkaException error) {
        cause = error;
      }
      boolean isUnknown = cause instanceof UnknownTopicOrPartitionException;
      long waited = System.nanoTime() - begin;
      if (isUnknown && waited > GONE_NS) {
        throw Troubles.isGone(expected.keySet());
      }
      boolean isPassing = cause instanceof RetriableException || cause instanceof TimeoutException;
      if (isPassing && !mustAnswer && waited > waitNs) {
        return null;
      }
      if (!isPassing || waited > waitNs) {
        throw Troubles.cannotAsk(expected.keySet(), cause);
      }
      pause();
    }
  }

  private static void pause() {
    try {
      Thread.sleep(PAUSE_MS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("the task is cancelled", error);
    }
  }
}
