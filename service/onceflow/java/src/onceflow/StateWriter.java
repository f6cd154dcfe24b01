package onceflow;

import java.io.ByteArrayInputStream;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RangeKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.LongType$;
import org.apache.spark.sql.types.NullType$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes the state of a query, as Spark finds it when it goes on. What was there of an operator is
 * not looked at. Not for several threads at once.
 */
public class StateWriter {
  private static final String ONLY_FAMILY = "default";

  // Spark's `TimerStateUtils`.
  private static final String BY_KEY = "$eventTimers_keyToTimestamp";
  private static final String BY_TIME = "$eventTimers_timestampToKey";

  private SparkSession session;
  private String location;
  private StateStoreConf conf;
  private long operator;
  private StructType key;
  private StructType group;
  private StructType value;
  private String family;
  private boolean hasTimers;
  private StateStoreProvider[] providers;
  private StateStore[] stores;

  /** How many rows a key has, where rows are numbered; else null. */
  private StateStore[] counts;

  private StateStoreProvider[] countProviders;
  private UnsafeProjection ofGroup;
  private UnsafeProjection ofKey;
  private UnsafeProjection ofValue;
  private UnsafeProjection ofNumber;
  private UnsafeProjection ofNothing;
  private UnsafeProjection ofTimerByKey;
  private UnsafeProjection ofTimerByTime;

  /**
   * Opens a store, empty.
   *
   * @param key with the number of a row in its group as its last column, if there is a counter
   * @param prefix how many key columns find several rows; 0: it takes all of them
   * @param family column family of the rows, with timers next to it; empty: the store has one only
   * @param counter store that counts the rows of a group; empty if rows have no number
   * @param version that is written
   */
  public StateWriter open(
      SparkSession session,
      String location,
      long operator,
      String name,
      String keyType,
      String valueType,
      int prefix,
      String family,
      String counter,
      int partitions,
      long version) {
    this.session = session;
    this.location = location;
    this.operator = operator;
    this.family = family.isEmpty() ? ONLY_FAMILY : family;
    hasTimers = !family.isEmpty();
    conf =
        new StateStoreConf(
            session.sessionState().conf(), scala.collection.immutable.Map$.MODULE$.empty());
    key = (StructType) DataType.fromJson(keyType);
    value = (StructType) DataType.fromJson(valueType);
    boolean isNumbered = !counter.isEmpty();
    group = StateReader.grouping(key, prefix, isNumbered);
    KeyStateEncoderSpec encoder = StateReader.encoder(key, prefix);
    providers = providers(name, key, value, encoder, partitions);
    stores = stores(providers, version);
    ofGroup = UnsafeProjection.create(group);
    ofKey = UnsafeProjection.create(key);
    ofValue = UnsafeProjection.create(value);
    if (isNumbered) {
      StructType count = new StructType().add("value", LongType$.MODULE$);
      ofNumber = UnsafeProjection.create(count);
      KeyStateEncoderSpec whole = new NoPrefixKeyStateEncoderSpec(group);
      countProviders = providers(counter, group, count, whole, partitions);
      counts = stores(countProviders, version);
    }
    if (hasTimers) {
      addFamilies(encoder);
    }
    return this;
  }

  private StateStoreProvider[] providers(
      String name, StructType key, StructType value, KeyStateEncoderSpec encoder, int partitions) {
    Configuration files = session.sessionState().newHadoopConf();
    files.set("sql.streaming.runId", UUID.randomUUID().toString());
    StateStoreProvider[] found = new StateStoreProvider[partitions];
    for (int i = 0; i < partitions; i++) {
      StateStoreProviderId id =
          new StateStoreProviderId(
              new StateStoreId(location, operator, i, name), UUID.randomUUID());
      found[i] =
          StateStoreProvider$.MODULE$.createAndInit(
              id, key, value, encoder, hasTimers, conf, files, false, Option.empty());
    }
    return found;
  }

  private StateStore[] stores(StateStoreProvider[] providers, long version) {
    StateStore[] found = new StateStore[providers.length];
    for (int i = 0; i < found.length; i++) {
      found[i] = providers[i].getStore(version - 1, Option.empty(), true, true);
    }
    return found;
  }

  /** Those that Spark's `TimerStateImpl` and its value of a key make. */
  private void addFamilies(KeyStateEncoderSpec encoder) {
    StructType nothing = new StructType().add("__dummy__", NullType$.MODULE$);
    StructType byKey = new StructType().add("key", key).add("expiryTimestampMs", LongType$.MODULE$);
    StructType byTime =
        new StructType().add("expiryTimestampMs", LongType$.MODULE$).add("key", key);
    ofNothing = UnsafeProjection.create(nothing);
    ofTimerByKey = UnsafeProjection.create(byKey);
    ofTimerByTime = UnsafeProjection.create(byTime);
    List first = new ArrayList();
    first.add(Integer.valueOf(0));
    scala.collection.immutable.Seq places = CollectionConverters.asScala(first).toSeq();
    for (int i = 0; i < stores.length; i++) {
      stores[i].createColFamilyIfAbsent(family, key, value, encoder, false, false);
      stores[i].createColFamilyIfAbsent(
          BY_KEY, byKey, nothing, new PrefixKeyScanStateEncoderSpec(byKey, 1), false, true);
      stores[i].createColFamilyIfAbsent(
          BY_TIME, byTime, nothing, new RangeKeyScanStateEncoderSpec(byTime, places), false, true);
    }
  }

  /**
   * Puts rows, as a stream of Arrow with the columns `key`, `value` and, for a store with timers,
   * the time of one in Unix milliseconds, or null.
   *
   * @return the number of the first row whose key was there already, and which was left out with
   *     those after it; -1 if there is none
   */
  public long put(byte[] stream) throws Exception {
    BufferAllocator memory =
        ArrowUtils.rootAllocator().newChildAllocator("state", 0, Long.MAX_VALUE);
    ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(stream), memory);
    try {
      long done = 0;
      while (reader.loadNextBatch()) {
        List vectors = reader.getVectorSchemaRoot().getFieldVectors();
        ColumnVector[] columns = new ColumnVector[vectors.size()];
        for (int i = 0; i < columns.length; i++) {
          columns[i] = new ArrowColumnVector((FieldVector) vectors.get(i));
        }
        int size = reader.getVectorSchemaRoot().getRowCount();
        Iterator rows = new ColumnarBatch(columns, size).rowIterator();
        for (; rows.hasNext(); done++) {
          if (!putRow((InternalRow) rows.next())) {
            return done;
          }
        }
      }
      return -1;
    } finally {
      reader.close();
      memory.close();
    }
  }

  private boolean putRow(InternalRow row) {
    InternalRow its = row.getStruct(0, key.size());
    int place = StateReader.partitionOf(its, group, stores.length);
    UnsafeRow found = (counts == null ? ofKey : ofGroup).apply(its);
    if (counts != null) {
      UnsafeRow before = counts[place].get(found, ONLY_FAMILY);
      long number = before == null ? 0 : before.getLong(0);
      counts[place].put(found, ofNumber.apply(row(Long.valueOf(number + 1))), ONLY_FAMILY);
      found = ofKey.apply(new JoinedRow(found, row(Long.valueOf(number))));
    }
    if (stores[place].get(found, family) != null) {
      return false;
    }
    stores[place].put(found, ofValue.apply(row.getStruct(1, value.size())), family);
    if (hasTimers && !row.isNullAt(2)) {
      Long at = Long.valueOf(row.getLong(2));
      UnsafeRow nothing = ofNothing.apply(row(null));
      stores[place].put(ofTimerByKey.apply(row(found, at)), nothing, BY_KEY);
      stores[place].put(ofTimerByTime.apply(row(at, found)), nothing, BY_TIME);
    }
    return true;
  }

  private static InternalRow row(Object first) {
    return new GenericInternalRow(new Object[] {first});
  }

  private static InternalRow row(Object first, Object second) {
    return new GenericInternalRow(new Object[] {first, second});
  }

  /**
   * Writes everything down.
   *
   * @return for each partition the ids of the files: of the counter, if there is one, and the store
   */
  public String[][] commit() {
    String[][] ids = new String[stores.length][];
    for (int i = 0; i < ids.length; i++) {
      String its = commit(stores[i]);
      ids[i] = counts == null ? new String[] {its} : new String[] {commit(counts[i]), its};
    }
    return ids;
  }

  private static String commit(StateStore store) {
    store.commit();
    return (String) store.getStateStoreCheckpointInfo().stateStoreCkptId().get();
  }

  /** Gives up what was not committed, and deletes the files of the stores on this machine. */
  public void close() {
    for (int i = 0; i < stores.length; i++) {
      close(stores[i], providers[i]);
      if (counts != null) {
        close(counts[i], countProviders[i]);
      }
    }
  }

  private static void close(StateStore store, StateStoreProvider provider) {
    if (!store.hasCommitted()) {
      store.abort();
    }
    provider.close();
  }
}
