package onceflow.sink;

import org.apache.kafka.common.utils.Utils;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/** The hash of a key from which `murmur2` takes the partition; no key counts as an empty one. */
public final class Murmur2 implements UDF1 {
  private static final byte[] EMPTY = new byte[0];

  /** The hash of a column. From Python, Py4J sometimes takes the function for one of Scala's. */
  public static Column of(Column key) {
    return functions.udf((UDF1) new Murmur2(), DataTypes.IntegerType).apply(new Column[] {key});
  }

  public Object call(Object key) {
    int hash = Utils.murmur2(key == null ? EMPTY : (byte[]) key);
    return Integer.valueOf(Utils.toPositive(hash));
  }
}
