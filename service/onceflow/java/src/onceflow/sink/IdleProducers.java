package onceflow.sink;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/**
 * Clients of this JVM that are in no transaction, for the tasks that follow: to make a client costs
 * as much processor time as a small batch.
 */
final class IdleProducers {
  /** More are closed, those first that have waited longest. */
  private static final int MOST = 32;

  private static final Deque IDLE = new ArrayDeque();

  private IdleProducers() {}

  /** Returns a client that has joined the transaction. */
  static JoinedProducer join(Assignment assignment) {
    JoinedProducer producer = taken(assignment.transactionalId, assignment.settings);
    if (producer == null) {
      producer = new JoinedProducer(assignment.settings, assignment.transactionalId);
    }
    boolean isJoined = false;
    try {
      producer.join(assignment.producerId, assignment.epoch);
      isJoined = true;
    } finally {
      if (!isJoined) {
        producer.close();
      }
    }
    return producer;
  }

  /** Takes back a client that has left its transaction. */
  static void release(Assignment assignment, JoinedProducer producer) {
    JoinedProducer surplus = null;
    synchronized (IDLE) {
      Map settings = new HashMap(assignment.settings);
      IDLE.addFirst(new Object[] {assignment.transactionalId, settings, producer});
      if (IDLE.size() > MOST) {
        surplus = (JoinedProducer) ((Object[]) IDLE.removeLast())[2];
      }
    }
    if (surplus != null) {
      surplus.close();
    }
  }

  private static JoinedProducer taken(String transactionalId, Map settings) {
    synchronized (IDLE) {
      for (Iterator entries = IDLE.iterator(); entries.hasNext(); ) {
        Object[] entry = (Object[]) entries.next();
        if (entry[0].equals(transactionalId) && entry[1].equals(settings)) {
          entries.remove();
          return (JoinedProducer) entry[2];
        }
      }
      return null;
    }
  }
}
