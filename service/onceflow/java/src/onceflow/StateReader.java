package onceflow;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.channels.Channels;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
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
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.execution.streaming.state.StateSchemaCompatibilityChecker;
import org.apache.spark.sql.execution.streaming.state.StateStore;
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
import scala.Tuple3;
import scala.collection.immutable.List$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads one store of a checkpoint's state, a partition at a time, as of a version. It copies files
 * to a folder of its own and writes nothing below the checkpoint; the stores of a running query are
 * others. Not for several threads at once.
 */
public class StateReader {
  private static final String TIME_ZONE = "UTC";
  private static final int SEED = 42;

  /** Of rows that are handed over at once, and one more. */
  private static final long MOST_BYTES = 64L << 20;

  private Configuration files;
  private StateStoreConf conf;
  private String location;
  private long operator;
  private String name;
  private int prefix;
  private boolean isNumbered;
  private boolean hasFamilies;
  private String family;
  private StructType key;
  private StructType value;
  private UnsafeProjection canonical;

  private StateStoreProvider provider;
  private int partition;
  private String unique;
  private ReadStateStore store;
  private scala.collection.Iterator rows;
  private Map wanted;
  private StateReader before;
  private boolean isLooking;

  /**
   * Reads the schema of a store.
   *
   * @param location folder of the state, with a folder for each operator
   * @param settings of Spark, those of its SQL and of Hadoop among them
   * @param name of the store
   * @param prefix how many key columns find several rows; 0: it takes all of them
   * @param isNumbered whether the last key column counts the rows of one key
   * @param schema file of the store's schema; empty: it is in Spark's usual place
   * @param column family of the rows; empty: the store has one only
   */
  public StateReader open(
      String location,
      Map settings,
      long operator,
      String name,
      int prefix,
      boolean isNumbered,
      String schema,
      String column) {
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
    // Else it looks for the old value of each row that it takes from a changelog.
    sql.setConfString("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false");
    conf = new StateStoreConf(sql, scala.collection.immutable.Map$.MODULE$.empty());
    hasFamilies = !column.isEmpty();
    StateStoreColFamilySchema found = schemaOf(schema, column);
    family = found.colFamilyName();
    key = found.keySchema();
    value = found.valueSchema();
    return this;
  }

  private StateStoreColFamilySchema schemaOf(String schema, String column) {
    scala.collection.immutable.List paths = List$.MODULE$.empty();
    if (!schema.isEmpty()) {
      paths = paths.$colon$colon(new Path(schema));
    }
    StateSchemaCompatibilityChecker schemas =
        new StateSchemaCompatibilityChecker(id(0), files, paths, Option.empty(), false);
    scala.collection.Iterator all = schemas.readSchemaFile().iterator();
    while (true) {
      StateStoreColFamilySchema each = (StateStoreColFamilySchema) all.next();
      if (!hasFamilies || each.colFamilyName().equals(column)) {
        return each;
      }
    }
  }

  public String key() {
    return key.json();
  }

  public String value() {
    return named(value).json();
  }

  private StateStoreProviderId id(int partition) {
    return new StateStoreProviderId(
        new StateStoreId(location, operator, partition, name), UUID.randomUUID());
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
   * Finds the partition of a key as Spark does, by the hash of what it groups by.
   *
   * @param values a text or null for each column of the key, by its path
   * @return -1 if columns are missing that the partition depends on
   */
  public int partitionOf(Map values, int partitions) {
    if (!hasAll(grouping(), values, "")) {
      return -1;
    }
    // Without a key, Spark has all rows in one partition.
    return grouping().isEmpty()
        ? 0
        : partitionOf(row(grouping(), values, ""), grouping(), partitions);
  }

  /** The partition of a row whose first columns are those that it is grouped by. */
  static int partitionOf(InternalRow row, StructType grouping, int partitions) {
    int hash = SEED;
    for (int i = 0; i < grouping.size(); i++) {
      DataType type = grouping.fields()[i].dataType();
      Object part = row.isNullAt(i) ? null : row.get(i, type);
      hash = (int) Murmur3HashFunction.hash(part, type, hash);
    }
    return Math.floorMod(hash, partitions);
  }

  /** The columns of the key that are alike in all rows that Spark looks up together. */
  private StructType grouping() {
    return grouping(key, prefix, isNumbered);
  }

  static StructType grouping(StructType key, int prefix, boolean isNumbered) {
    int columns = prefix > 0 ? prefix : key.size() - (isNumbered ? 1 : 0);
    return new StructType((StructField[]) Arrays.copyOf(key.fields(), columns));
  }

  static KeyStateEncoderSpec encoder(StructType key, int prefix) {
    return prefix > 0
        ? (KeyStateEncoderSpec) new PrefixKeyScanStateEncoderSpec(key, prefix)
        : new NoPrefixKeyStateEncoderSpec(key);
  }

  private boolean hasAll(StructType type, Map values, String path) {
    boolean has = true;
    for (int i = 0; i < type.size(); i++) {
      String name = path + type.fields()[i].name();
      DataType inner = type.fields()[i].dataType();
      boolean isStruct = inner instanceof StructType;
      has &= isStruct ? hasAll((StructType) inner, values, name + ".") : values.containsKey(name);
    }
    return has;
  }

  private InternalRow row(StructType type, Map values, String path) {
    Object[] found = new Object[type.size()];
    for (int i = 0; i < found.length; i++) {
      String name = path + type.fields()[i].name();
      DataType inner = type.fields()[i].dataType();
      boolean isStruct = inner instanceof StructType;
      found[i] =
          isStruct
              ? row((StructType) inner, values, name + ".")
              : parsed((String) values.get(name), inner);
    }
    return new GenericInternalRow(found);
  }

  private Object parsed(String text, DataType type) {
    Literal literal = new Literal(UTF8String.fromString(text), StringType$.MODULE$);
    return new Cast(literal, type, Option.apply(TIME_ZONE), EvalMode$.MODULE$.ANSI()).eval(null);
  }

  private boolean matches(InternalRow row, StructType type, Map values, String path) {
    boolean matches = true;
    for (int i = 0; matches && i < type.size(); i++) {
      String name = path + type.fields()[i].name();
      DataType inner = type.fields()[i].dataType();
      if (inner instanceof StructType && !row.isNullAt(i)) {
        StructType struct = (StructType) inner;
        matches = matches(row.getStruct(i, struct.size()), struct, values, name + ".");
      } else if (values.containsKey(name)) {
        Object found = row.isNullAt(i) ? null : row.get(i, inner);
        matches = Objects.deepEquals(found, parsed((String) values.get(name), inner));
      }
    }
    return matches;
  }

  /**
   * Opens a partition as of a version.
   *
   * @param unique id of the version's files, of the log of commits
   */
  public void load(int partition, long version, String unique) {
    if (store != null && this.partition == partition && Objects.equals(unique, this.unique)) {
      return;
    }
    KeyStateEncoderSpec encoder = encoder(key, prefix);
    provide(partition);
    release();
    store = provider.getReadStore(version, Option.apply(unique));
    if (hasFamilies) {
      // It is there; the provider has to learn how its rows are encoded.
      ((StateStore) store).createColFamilyIfAbsent(family, key, value, encoder, false, false);
    }
    this.unique = unique;
  }

  private void provide(int partition) {
    if (provider == null || this.partition != partition) {
      close();
      KeyStateEncoderSpec encoder = encoder(key, prefix);
      provider =
          StateStoreProvider$.MODULE$.createAndInit(
              id(partition), key, value, encoder, hasFamilies, conf, files, false, Option.empty());
      this.partition = partition;
    }
  }

  /**
   * Opens a partition as of a version and prepares <code>next</code>, as <code>load</code> and
   * <code>select</code> do. For a key that is given as a whole, changes since the newest snapshot
   * or the first batch are looked through, and not replayed.
   */
  public void find(int partition, long version, String unique, Map values, int most) {
    boolean isOne = prefix == 0 && !isNumbered && hasAll(grouping(), values, "");
    if (!isOne || !seek(partition, version, unique, values)) {
      load(partition, version, unique);
      select(values, most);
    }
  }

  /** Whether the rows of a key were found; not if files are missing to go on from. */
  private boolean seek(int partition, long version, String unique, Map values) {
    provide(partition);
    RocksDBStateStoreProvider rocks = (RocksDBStateStoreProvider) provider;
    Changelogs changes = new Changelogs(rocks.rocksDB().fileManager(), version, unique);
    if (!changes.areWhole() || conf.rowChecksumEnabled()) {
      return false;
    }
    load(partition, changes.version(), changes.unique());
    select(values, 1);
    Tuple3 encoders = (Tuple3) encodersOf(rocks).get(family);
    RocksDBValueStateEncoder encoder = (RocksDBValueStateEncoder) encoders._2();
    if (encoder.supportsMultipleValuesPerKey()) {
      return false;
    }
    UnsafeRow row = UnsafeProjection.create(grouping()).apply(row(grouping(), values, ""));
    byte[] bytes = ((RocksDBKeyStateEncoder) encoders._1()).encodeKey(row);
    if (hasFamilies) {
      short number = ((Number) encoders._3()).shortValue();
      bytes = RocksDBStateStoreProvider.encodeStateRowWithPrefix(bytes, number);
    }
    byte[][] changed = changes.last(bytes);
    if (changed != null) {
      List found = new ArrayList();
      if (changed[0] != null) {
        found.add(new UnsafeRowPair(row, encoder.decodeValue(changed[0]).copy()));
      }
      rows = CollectionConverters.asScala(found.iterator());
    }
    return true;
  }

  private static Map encodersOf(RocksDBStateStoreProvider provider) {
    return provider
        .org$apache$spark$sql$execution$streaming$state$RocksDBStateStoreProvider$$keyValueEncoderMap();
  }

  private void release() {
    rows = null;
    if (store != null) {
      ReadStateStore last = store;
      store = null;
      last.abort();
    }
  }

  /** Deletes the copies. */
  public void close() {
    release();
    if (provider != null) {
      StateStoreProvider last = provider;
      provider = null;
      last.close();
    }
  }

  /**
   * Prepares `next` for the rows with these values in their keys: looks them up if all columns are
   * given that Spark groups by, else examines every row.
   *
   * @param most how many rows of one key to look up
   */
  public void select(Map values, int most) {
    wanted = values;
    before = null;
    if (!hasAll(grouping(), values, "")) {
      rows = store.iterator(family);
      return;
    }
    UnsafeProjection unsafe = UnsafeProjection.create(grouping());
    UnsafeRow row = unsafe.apply(row(grouping(), values, ""));
    List found = new ArrayList();
    if (prefix > 0) {
      rows = store.prefixScan(row, family);
      return;
    }
    if (isNumbered) {
      addNumbered(row, most, found);
    } else {
      UnsafeRow value = store.get(row, family);
      if (value != null) {
        found.add(new UnsafeRowPair(row, value.copy()));
      }
    }
    rows = CollectionConverters.asScala(found.iterator());
  }

  private void addNumbered(UnsafeRow group, int most, List found) {
    UnsafeProjection unsafe = UnsafeProjection.create(key);
    for (int i = 0; i < most; i++) {
      InternalRow last = new GenericInternalRow(new Object[] {Long.valueOf(i)});
      UnsafeRow row = unsafe.apply(new JoinedRow(group, last));
      UnsafeRow value = store.get(row, family);
      if (value == null) {
        return;
      }
      found.add(new UnsafeRowPair(row.copy(), value.copy()));
    }
  }

  /** Prepares `next` for the rows that differ from those that another reader has loaded. */
  public void compare(StateReader before) {
    wanted = Collections.emptyMap();
    this.before = before;
    isLooking = true;
    rows = store.iterator(family);
  }

  /**
   * Examines some rows and gives those that are wanted, as a stream of Arrow: key and value, or
   * key, value before and value after.
   *
   * @return null after the last one
   */
  public byte[] next(int most) throws Exception {
    if (before != null && isLooking && !rows.hasNext()) {
      isLooking = false; // from now on, rows that only the other reader has
      rows = before.store.iterator(family);
    }
    if (!rows.hasNext()) {
      return null;
    }
    BufferAllocator memory =
        ArrowUtils.rootAllocator().newChildAllocator("state", 0, Long.MAX_VALUE);
    VectorSchemaRoot root =
        VectorSchemaRoot.create(
            ArrowUtils.toArrowSchema(schema(), TIME_ZONE, false, false), memory);
    try {
      ArrowWriter writer = ArrowWriter.create(root);
      long size = 0;
      for (int i = 0; i < most && size < MOST_BYTES && rows.hasNext(); i++) {
        UnsafeRowPair pair = (UnsafeRowPair) rows.next();
        size += pair.key().getSizeInBytes() + pair.value().getSizeInBytes();
        if (before != null) {
          writeIfChanged(writer, pair);
        } else if (matches(pair.key(), key, wanted, "")) {
          writer.write(new GenericInternalRow(new Object[] {pair.key(), pair.value()}));
        }
      }
      writer.finish();
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      ArrowStreamWriter stream = new ArrowStreamWriter(root, null, Channels.newChannel(bytes));
      stream.start();
      stream.writeBatch();
      stream.end();
      return bytes.toByteArray();
    } finally {
      root.close();
      memory.close();
    }
  }

  private void writeIfChanged(ArrowWriter writer, UnsafeRowPair pair) {
    UnsafeRow other = (isLooking ? before.store : store).get(pair.key(), family);
    if (isLooking ? !pair.value().equals(other) : other == null) {
      Object[] found =
          isLooking
              ? new Object[] {pair.key(), other, pair.value()}
              : new Object[] {pair.key(), pair.value(), null};
      writer.write(new GenericInternalRow(found));
    }
  }

  private StructType schema() {
    StructType found = new StructType().add("key", named(key), false);
    return before == null
        ? found.add("value", named(value), false)
        : found.add("before", named(value), true).add("after", named(value), true);
  }

  /** Aggregates of one kind have the same name in Spark's schema. */
  private StructType named(StructType type) {
    Set names = new HashSet();
    StructField[] fields = new StructField[type.size()];
    for (int i = 0; i < fields.length; i++) {
      StructField field = type.fields()[i];
      String name = field.name();
      for (int again = 2; !names.add(name); again++) {
        name = field.name() + "_" + again;
      }
      fields[i] = new StructField(name, field.dataType(), field.nullable(), field.metadata());
    }
    return new StructType(fields);
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
    List columns = new ArrayList();
    int keys = key.size();
    for (int i = 0; i < keys - (isNumbered ? 1 : 0); i++) {
      columns.add(new BoundReference(i, key.fields()[i].dataType(), true));
    }
    for (int i = 0; i < value.size(); i++) {
      columns.add(new BoundReference(keys + i, value.fields()[i].dataType(), true));
    }
    return UnsafeProjection.create(CollectionConverters.asScala(columns).toSeq());
  }
}
