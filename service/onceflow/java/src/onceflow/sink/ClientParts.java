package onceflow.sink;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Collection;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.internals.TransactionManager;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;

/**
 * The private parts of Kafka's client that a producer needs to join a transaction. Nothing else
 * here looks into the client.
 */
final class ClientParts {
  /** The version that the tests run. Another one is refused, even if it has the same parts. */
  static final String VERSION = "4.3.1";

  private final Field manager;
  private final Field state;
  private final Field identity;
  private final Field sequences;
  private final Field partitions;
  private final Field started;
  private final Field lastError;
  private final Field bump;
  private final Field[] pending;
  private final Method reset;
  private final Object uninitialized;
  private final Object ready;
  private final Object inTransaction;

  /** Looks them up; throws IllegalStateException if this is another client than the tested one. */
  ClientParts() {
    String version = AppInfoParser.getVersion();
    if (!version.equals(VERSION)) {
      throw unlike("kafka-clients " + version);
    }
    try {
      manager = opened(KafkaProducer.class, "transactionManager");
      state = opened(TransactionManager.class, "currentState");
      identity = opened(TransactionManager.class, "producerIdAndEpoch");
      sequences = opened(TransactionManager.class, "txnPartitionMap");
      partitions = opened(TransactionManager.class, "partitionsInTransaction");
      started = opened(TransactionManager.class, "transactionStarted");
      lastError = opened(TransactionManager.class, "lastError");
      bump = opened(TransactionManager.class, "clientSideEpochBumpRequired");
      pending =
          new Field[] {
            opened(TransactionManager.class, "pendingRequests"),
            opened(TransactionManager.class, "newPartitionsInTransaction"),
            opened(TransactionManager.class, "pendingPartitionsInTransaction"),
          };
      reset = sequences.getType().getDeclaredMethod("reset", new Class[0]);
      reset.setAccessible(true);
      uninitialized = constant("UNINITIALIZED");
      ready = constant("READY");
      inTransaction = constant("IN_TRANSACTION");
    } catch (ReflectiveOperationException absent) {
      throw unlike(absent.toString());
    } catch (RuntimeException refused) {
      throw unlike(refused.toString());
    }
  }

  TransactionManager managerOf(KafkaProducer client) {
    return (TransactionManager) read(manager, client);
  }

  /** Puts a client that is in no transaction into one, whose sequences all begin at 0. */
  void enter(TransactionManager target, long producerId, short epoch) {
    synchronized (target) {
      Object found = read(state, target);
      if (found != uninitialized && found != ready) {
        throw new IllegalStateException("a client cannot join in state " + found);
      }
      checkClean(target);
      if (target.isTransactionV2Enabled()) {
        throw new IllegalStateException("a client that was initialised cannot join");
      }
      ((Collection) read(partitions, target)).clear();
      try {
        reset.invoke(read(sequences, target), new Object[0]);
        started.setBoolean(target, false);
        identity.set(target, new ProducerIdAndEpoch(producerId, epoch));
        state.set(target, ready);
      } catch (ReflectiveOperationException refused) {
        throw unlike(refused.toString());
      }
    }
  }

  /** Takes a client out of its transaction, which the driver ends. */
  void leave(TransactionManager target) {
    synchronized (target) {
      Object found = read(state, target);
      if (found != inTransaction) {
        throw new IllegalStateException("a client cannot leave in state " + found);
      }
      checkClean(target);
      try {
        state.set(target, ready);
      } catch (ReflectiveOperationException refused) {
        throw unlike(refused.toString());
      }
    }
  }

  static IllegalStateException unlike(String found) {
    return new IllegalStateException(
        "Kafka's client cannot join a transaction; expected kafka-clients "
            + VERSION
            + "; found "
            + found);
  }

  private void checkClean(TransactionManager target) {
    for (int at = 0; at < pending.length; at++) {
      if (!((Collection) read(pending[at], target)).isEmpty()) {
        throw new IllegalStateException("requests of a transaction are under way");
      }
    }
    Object error = read(lastError, target);
    if (error != null || ((Boolean) read(bump, target)).booleanValue()) {
      throw new IllegalStateException("a transaction has failed", (Throwable) error);
    }
  }

  private Object constant(String name) {
    Object[] constants = state.getType().getEnumConstants();
    for (int at = 0; at < constants.length; at++) {
      if (((Enum) constants[at]).name().equals(name)) {
        return constants[at];
      }
    }
    throw unlike("no state " + name);
  }

  private static Object read(Field field, Object of) {
    try {
      return field.get(of);
    } catch (IllegalAccessException refused) {
      throw unlike(refused.toString());
    }
  }

  private static Field opened(Class owner, String name) throws NoSuchFieldException {
    Field field = owner.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }
}
