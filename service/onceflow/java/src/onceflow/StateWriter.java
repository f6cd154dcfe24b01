package onceflow;

import java.io.ByteArrayInputStream;
import java.util.UUID;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Murmur3HashFunction;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;

/** Writes the state of one operator as of a version that is next, instead of what it had. */
public class StateWriter {
  private static final int SEED = 42;
  private StructType key;
  private StructType value;
  private StateStoreProvider[] providers;
  private StateStore[] stores;

  public StateWriter open(
      SparkSession session,
      String location,
      long operator,
      String keyType,
      String valueType,
      int partitions,
      long version) {
    key = (StructType) DataType.fromJson(keyType);
    value = (StructType) DataType.fromJson(valueType);
    Configuration files = session.sessionState().newHadoopConf();
    files.set("sql.streaming.runId", UUID.randomUUID().toString());
    StateStoreConf conf =
        new StateStoreConf(
            session.sessionState().conf(), scala.collection.immutable.Map$.MODULE$.empty());
    providers = new StateStoreProvider[partitions];
    stores = new StateStore[partitions];
    for (int i = 0; i < partitions; i++) {
      StateStoreProviderId id =
          new StateStoreProviderId(
              new StateStoreId(location, operator, i, "default"), UUID.randomUUID());
      providers[i] =
          StateStoreProvider$.MODULE$.createAndInit(
              id,
              key,
              value,
              new NoPrefixKeyStateEncoderSpec(key),
              false,
              conf,
              files,
              false,
              Option.empty());
      stores[i] = providers[i].getStore(version, Option.empty(), true, true);
    }
    return this;
  }

  public void put(byte[] stream) throws Exception {
    BufferAllocator memory =
        ArrowUtils.rootAllocator().newChildAllocator("state", 0, Long.MAX_VALUE);
    ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(stream), memory);
    UnsafeProjection ofKey = UnsafeProjection.create(key);
    UnsafeProjection ofValue = UnsafeProjection.create(value);
    while (reader.loadNextBatch()) {
      java.util.List vectors = reader.getVectorSchemaRoot().getFieldVectors();
      ColumnVector[] columns = new ColumnVector[vectors.size()];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = new ArrowColumnVector((FieldVector) vectors.get(i));
      }
      ColumnarBatch batch = new ColumnarBatch(columns, reader.getVectorSchemaRoot().getRowCount());
      for (java.util.Iterator rows = batch.rowIterator(); rows.hasNext(); ) {
        InternalRow row = (InternalRow) rows.next();
        InternalRow its = row.getStruct(0, key.size());
        int hash = SEED;
        for (int i = 0; i < key.size(); i++) {
          DataType type = key.fields()[i].dataType();
          hash =
              (int) Murmur3HashFunction.hash(its.isNullAt(i) ? null : its.get(i, type), type, hash);
        }
        int partition = Math.floorMod(hash, stores.length);
        stores[partition].put(
            ofKey.apply(its), ofValue.apply(row.getStruct(1, value.size())), "default");
      }
    }
    reader.close();
    memory.close();
  }

  /** Ids of the files, by partition. */
  public String[] commit() {
    String[] ids = new String[stores.length];
    for (int i = 0; i < stores.length; i++) {
      stores[i].commit();
      ids[i] = (String) stores[i].getStateStoreCheckpointInfo().stateStoreCkptId().get();
      providers[i].close();
    }
    return ids;
  }
}
