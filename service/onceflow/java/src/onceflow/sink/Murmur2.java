package onceflow.sink;

import org.apache.kafka.common.utils.Utils;
import org.apache.spark.sql.api.java.UDF1;

/** The hash of a key from which `murmur2` takes the partition; no key counts as an empty one. */
public final class Murmur2 implements UDF1 {
  private static final byte[] EMPTY = new byte[0];

  public Object call(Object key) {
    int hash = Utils.murmur2(key == null ? EMPTY : (byte[]) key);
    return Integer.valueOf(Utils.toPositive(hash));
  }
}
