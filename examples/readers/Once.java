import java.nio.ByteBuffer;
import java.util.Set;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Leaves out what a topic of Onceflow has more than once, in a program of Kafka Streams:
 *
 * <pre>{@code builder.stream("page-views").processValues(new Once<>())}</pre>
 *
 * <p>Records of a pipeline are numbered 1, 2, 3 ... in each partition. The highest number is kept in
 * a store, which moves together with the position of the stream under {@code exactly_once_v2}.
 * Records without the header come from other programs, and all of them are kept.
 */
public class Once<K, V> implements FixedKeyProcessorSupplier<K, V, V> {
  private static final String STORE = "onceflow-once";
  private static final String HEADER = "onceflow";

  @Override
  public FixedKeyProcessor<K, V, V> get() {
    return new Filter<>();
  }

  @Override
  public Set<StoreBuilder<?>> stores() {
    return Set.of(
        Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.ByteBuffer()));
  }

  private static class Filter<K, V> extends ContextualFixedKeyProcessor<K, V, V> {
    private KeyValueStore<String, ByteBuffer> highest;

    @Override
    public void init(FixedKeyProcessorContext<K, V> context) {
      super.init(context);
      highest = context.getStateStore(STORE);
    }

    @Override
    public void process(FixedKeyRecord<K, V> record) {
      Header header = record.headers().lastHeader(HEADER);
      if (header == null || isNew(ByteBuffer.wrap(header.value()))) {
        context().forward(record);
      }
    }

    /** Byte 0 is the version, bytes 2 and 3 are the lineage, 4 to 7 the pipeline, 24 to 31 the number. */
    private boolean isNew(ByteBuffer header) {
      if (header.get(0) != 1) {
        throw new IllegalStateException("unknown version of the header: " + header.get(0));
      }
      RecordMetadata from = context().recordMetadata().orElseThrow();
      String of = from.topic() + "/" + from.partition() + "/" + header.getInt(4);
      ByteBuffer before = highest.get(of);
      // Another lineage counts from 1 again: the pipeline has lost its ledger.
      boolean isNew =
          before == null
              || header.getShort(2) != before.getShort(0)
              || header.getLong(24) > before.getLong(2);
      if (isNew) {
        ByteBuffer after = ByteBuffer.allocate(10);
        highest.put(of, after.putShort(header.getShort(2)).putLong(header.getLong(24)).flip());
      }
      return isNew;
    }
  }
}
