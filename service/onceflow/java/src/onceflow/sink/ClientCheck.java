package onceflow.sink;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.internals.TransactionManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;

/**
 * Shows, without a broker, that the private parts of Kafka's client do what is expected of them.
 */
public final class ClientCheck {
  private static final long PRODUCER_ID = 7;

  private final ClientParts parts = new ClientParts();
  private final TopicPartition partition = new TopicPartition("t", 0);
  private final KafkaProducer client;
  private final TransactionManager manager;

  private ClientCheck() {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", "127.0.0.1:1");
    settings.put("reconnect.backoff.ms", "60000");
    settings.put("reconnect.backoff.max.ms", "60000");
    settings.put("transactional.id", "check");
    client = new KafkaProducer(settings, new ByteArraySerializer(), new ByteArraySerializer());
    manager = parts.managerOf(client);
  }

  /** Throws IllegalStateException if a producer cannot join transactions with this client. */
  public static void run() {
    ClientCheck check = new ClientCheck();
    try {
      check.enterAndLeave((short) 3);
      check.enterAndLeave((short) 4); // again, as a client that is used again
    } catch (ReflectiveOperationException absent) {
      throw ClientParts.unlike(absent.toString());
    } finally {
      check.client.close(java.time.Duration.ZERO);
    }
  }

  private void enterAndLeave(short epoch) throws ReflectiveOperationException {
    parts.enter(manager, PRODUCER_ID, epoch);
    client.beginTransaction();
    ProducerIdAndEpoch identity = (ProducerIdAndEpoch) call("producerIdAndEpoch", null, null);
    need(identity.producerId == PRODUCER_ID, "its producer id");
    need(identity.epoch == epoch, "its epoch");
    need(manager.hasProducerId() && manager.isTransactional(), "a transaction");
    need(takeSequence() == 0 && takeSequence() == 1, "sequences from 0");
    synchronized (manager) {
      manager.maybeAddPartition(partition);
      need(!manager.transactionContainsPartition(partition), "partitions to be added first");
      need(!isLeft(), "requests that keep it in the transaction");
      forgetRequests();
    }
    need(isLeft(), "an end without a request");
    need(isCommitRefused(), "nothing to commit outside of a transaction");
  }

  private int takeSequence() throws ReflectiveOperationException {
    Integer next = (Integer) call("sequenceNumber", TopicPartition.class, partition);
    Method take =
        TransactionManager.class.getDeclaredMethod(
            "incrementSequenceNumber", new Class[] {TopicPartition.class, int.class});
    take.setAccessible(true);
    take.invoke(manager, new Object[] {partition, Integer.valueOf(1)});
    return next.intValue();
  }

  private Object call(String name, Class type, Object argument)
      throws ReflectiveOperationException {
    Class[] types = type == null ? new Class[0] : new Class[] {type};
    Method method = TransactionManager.class.getDeclaredMethod(name, types);
    method.setAccessible(true);
    return method.invoke(manager, type == null ? new Object[0] : new Object[] {argument});
  }

  private void forgetRequests() throws ReflectiveOperationException {
    String[] names = {"newPartitionsInTransaction", "pendingPartitionsInTransaction"};
    for (int at = 0; at < names.length; at++) {
      Field field = TransactionManager.class.getDeclaredField(names[at]);
      field.setAccessible(true);
      ((Collection) field.get(manager)).clear();
    }
    Field requests = TransactionManager.class.getDeclaredField("pendingRequests");
    requests.setAccessible(true);
    ((Collection) requests.get(manager)).clear();
  }

  private boolean isLeft() {
    try {
      parts.leave(manager);
      return true;
    } catch (IllegalStateException refused) {
      return false;
    }
  }

  private boolean isCommitRefused() {
    try {
      client.commitTransaction();
      return false;
    } catch (IllegalStateException refused) {
      return true;
    }
  }

  private static void need(boolean isSo, String what) {
    if (!isSo) {
      throw ClientParts.unlike("one without " + what);
    }
  }
}
