package onceflow;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.channels.Channels;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Murmur3HashFunction;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateSchemaCompatibilityChecker;
import org.apache.spark.sql.execution.streaming.state.StateStoreColFamilySchema;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Nil$;

/**
 * Reads one store of a checkpoint's state, a partition at a time, as of a version. It copies files
 * to a folder of its own and writes nothing below the checkpoint; the stores of a running query are
 * others. Not for several threads at once.
 */
public class StateReader {
  private static final String TIME_ZONE = "UTC";
  private static final int SEED = 42;

  private Configuration files;
  private StateStoreConf conf;
  private String location;
  private long operator;
  private String name;
  private int prefix;
  private boolean isNumbered;
  private String family;
  private StructType key;
  private StructType value;
  private UnsafeProjection canonical;

  private StateStoreProvider provider;
  private int partition;
  private ReadStateStore store;
  private scala.collection.Iterator rows;

  /**
   * Reads the schema of a store.
   *
   * @param location folder of the state, with a folder for each operator
   * @param settings of Spark, those of its SQL and of Hadoop among them
   * @param name of the store
   * @param prefix how many key columns find several rows; 0: it takes all of them
   * @param isNumbered whether the last key column counts the rows of one key
   */
  public StateReader open(
      String location, Map settings, long operator, String name, int prefix, boolean isNumbered) {
    this.location = location;
    this.operator = operator;
    this.name = name;
    this.prefix = prefix;
    this.isNumbered = isNumbered;
    SparkConf spark = new SparkConf(false);
    SQLConf sql = new SQLConf();
    for (Iterator each = settings.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry setting = (Map.Entry) each.next();
      spark.set((String) setting.getKey(), (String) setting.getValue());
    }
    files = SparkHadoopUtil.get().newConfiguration(spark);
    for (Iterator each = settings.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry setting = (Map.Entry) each.next();
      if (((String) setting.getKey()).startsWith("spark.sql.")) {
        sql.setConfString((String) setting.getKey(), (String) setting.getValue());
        files.set((String) setting.getKey(), (String) setting.getValue());
      }
    }
    files.set("sql.streaming.runId", UUID.randomUUID().toString());
    conf = new StateStoreConf(sql, scala.collection.immutable.Map$.MODULE$.empty());
    StateSchemaCompatibilityChecker schemas =
        new StateSchemaCompatibilityChecker(id(0), files, Nil$.MODULE$, Option.empty(), false);
    StateStoreColFamilySchema found = (StateStoreColFamilySchema) schemas.readSchemaFile().head();
    family = found.colFamilyName();
    key = found.keySchema();
    value = found.valueSchema();
    return this;
  }

  public String key() {
    return key.json();
  }

  public String value() {
    return value.json();
  }

  private StateStoreProviderId id(int partition) {
    return new StateStoreProviderId(
        new StateStoreId(location, operator, partition, name), UUID.randomUUID());
  }

  /**
   * The partition that has a key: Spark's own, by the hash of what it groups by.
   *
   * @param values a text for each leaf of the key; what no partition depends on may be missing
   */
  public int partitionOf(Map values, int partitions) {
    int columns = prefix > 0 ? prefix : key.size() - (isNumbered ? 1 : 0);
    InternalRow row = row(key, values, "");
    int hash = SEED;
    for (int i = 0; i < columns; i++) {
      DataType type = key.fields()[i].dataType();
      hash = (int) Murmur3HashFunction.hash(row.get(i, type), type, hash);
    }
    return Math.floorMod(hash, partitions);
  }

  private InternalRow row(StructType type, Map values, String path) {
    StructField[] fields = type.fields();
    Object[] found = new Object[fields.length];
    for (int i = 0; i < fields.length; i++) {
      String name = path + fields[i].name();
      found[i] =
          fields[i].dataType() instanceof StructType
              ? row((StructType) fields[i].dataType(), values, name + ".")
              : parsed((String) values.get(name), fields[i].dataType());
    }
    return new GenericInternalRow(found);
  }

  private Object parsed(String text, DataType type) {
    Literal literal = new Literal(UTF8String.fromString(text), StringType$.MODULE$);
    return new Cast(literal, type, Option.apply(TIME_ZONE), EvalMode$.MODULE$.ANSI()).eval(null);
  }

  /** Whether a text can be a value of a type, given as JSON. */
  public boolean fits(String text, String type) {
    try {
      parsed(text, DataType.fromJson(type));
      return true;
    } catch (RuntimeException error) {
      return false;
    }
  }

  /**
   * Opens a partition as of a version.
   *
   * @param unique id of the version's files, of the log of commits
   */
  public void load(int partition, long version, String unique) {
    if (provider == null || this.partition != partition) {
      close();
      KeyStateEncoderSpec encoder =
          prefix > 0
              ? (KeyStateEncoderSpec) new PrefixKeyScanStateEncoderSpec(key, prefix)
              : new NoPrefixKeyStateEncoderSpec(key);
      provider =
          StateStoreProvider$.MODULE$.createAndInit(
              id(partition), key, value, encoder, false, conf, files, false, Option.empty());
      this.partition = partition;
    }
    release();
    store = provider.getReadStore(version, Option.apply(unique));
  }

  private void release() {
    rows = null;
    if (store != null) {
      ReadStateStore last = store;
      store = null;
      last.abort();
    }
  }

  public void close() {
    release();
    if (provider != null) {
      StateStoreProvider last = provider;
      provider = null;
      last.close();
    }
  }

  /** Counts rows and bytes, and adds up a hash of each row: three numbers. */
  public String summary() {
    long count = 0;
    long bytes = 0;
    BigInteger sum = BigInteger.ZERO;
    JoinedRow joined = new JoinedRow();
    if (canonical == null) {
      canonical = canonical();
    }
    for (scala.collection.Iterator all = store.iterator(family); all.hasNext(); ) {
      UnsafeRowPair pair = (UnsafeRowPair) all.next();
      UnsafeRow row = canonical.apply(joined.apply(pair.key(), pair.value()));
      long hash =
          XXH64.hashUnsafeBytes(
              row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes(), SEED);
      sum = sum.add(BigInteger.valueOf(hash));
      bytes += pair.key().getSizeInBytes() + pair.value().getSizeInBytes();
      count++;
    }
    return count + " " + bytes + " " + sum;
  }

  /** A row's bytes depend on its values only: not on how it was made, or on its number. */
  private UnsafeProjection canonical() {
    List columns = new java.util.ArrayList();
    int keys = key.size();
    for (int i = 0; i < keys - (isNumbered ? 1 : 0); i++) {
      columns.add(new BoundReference(i, key.fields()[i].dataType(), true));
    }
    for (int i = 0; i < value.size(); i++) {
      columns.add(new BoundReference(keys + i, value.fields()[i].dataType(), true));
    }
    return UnsafeProjection.create(scala.jdk.javaapi.CollectionConverters.asScala(columns).toSeq());
  }
}
