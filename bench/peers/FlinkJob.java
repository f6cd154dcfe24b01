import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;

/** The jobs of the benchmark in Flink SQL; arguments as `bench.peers` writes them. */
public final class FlinkJob {
  private FlinkJob() {}

  public static void main(String[] arguments) throws Exception {
    String servers = arguments[0];
    String input = arguments[1];
    String output = arguments[2];
    boolean isFinal = arguments[3].equals("final");
    long records = Long.parseLong(arguments[4]);
    String commitMs = arguments[5];
    String folder = arguments[6];
    boolean isFilter = arguments[7].equals("filter");
    String state = arguments[8];

    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", commitMs + " ms");
    settings.setString("execution.checkpointing.dir", "file://" + folder + "/checkpoints");
    settings.setString("state.backend.type", state);
    settings.setString("taskmanager.memory.managed.size", "256m");
    settings.setString("table.local-time-zone", "UTC");
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.getExecutionEnvironment(settings);
    environment.setParallelism(Runtime.getRuntime().availableProcessors());
    StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
    tables.executeSql(source(servers, input, output, records > 0));
    String query;
    if (isFilter) {
      tables.executeSql(sink(servers, output, "ad_id STRING, doubled BIGINT, ts BIGINT", "kafka"));
      query = "SELECT ad_id, amount * 2, ts FROM events WHERE amount % 10 <> 0";
    } else if (isFinal) {
      tables.executeSql(sink(servers, output, COUNTED, "kafka"));
      query =
          "SELECT ad_id, CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start)"
              + " AS BIGINT) * 1000, COUNT(*), SUM(amount) FROM TABLE(TUMBLE(TABLE events,"
              + " DESCRIPTOR(happened), INTERVAL '10' SECOND))"
              + " GROUP BY ad_id, window_start, window_end";
    } else {
      String keyed = COUNTED + ", PRIMARY KEY (ad_id, window_ms) NOT ENFORCED";
      tables.executeSql(sink(servers, output, keyed, "upsert-kafka"));
      query =
          "SELECT ad_id, ts - ts % 10000, COUNT(*), SUM(amount) FROM events"
              + " GROUP BY ad_id, ts - ts % 10000";
    }
    TableResult job = tables.executeSql("INSERT INTO results " + query);
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
      long told = 0;
      while (isRunning(job)) {
        long done = committed(admin, output);
        // The last ones count when the job has ended.
        if (done > told && (records == 0 || done < records)) {
          tell(done - told);
          told = done;
        }
      }
      tell(records - told);
    }
    System.exit(0);
  }

  private static final String COUNTED =
      "ad_id STRING, window_ms BIGINT, records BIGINT, total BIGINT";

  private static String source(String servers, String topic, String group, boolean isBounded) {
    return "CREATE TABLE events (ad_id STRING, amount BIGINT, ts BIGINT,"
        + " happened AS TO_TIMESTAMP_LTZ(ts, 3),"
        + " WATERMARK FOR happened AS happened - INTERVAL '5' SECOND)"
        + " WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = '"
        + topic
        + "', 'properties.bootstrap.servers' = '"
        + servers
        + "', 'properties.group.id' = '"
        + group
        + "', 'properties.isolation.level' = 'read_committed',"
        + " 'scan.startup.mode' = 'earliest-offset'"
        + (isBounded ? ", 'scan.bounded.mode' = 'latest-offset')" : ")");
  }

  private static String sink(String servers, String topic, String columns, String connector) {
    String key = connector.equals("kafka") ? "'key.fields' = 'ad_id', 'format' = 'json'," : "";
    String formats = "'key.format' = 'json', 'value.format' = 'json',";
    return "CREATE TABLE results ("
        + columns
        + ") WITH ("
        + (connector.equals("kafka") ? key + " 'key.format' = 'json'," : formats)
        + " 'connector' = '"
        + connector
        + "', 'topic' = '"
        + topic
        + "', 'properties.bootstrap.servers' = '"
        + servers
        + "', 'properties.compression.type' = 'lz4', 'properties.batch.size' = '262144',"
        + " 'properties.linger.ms' = '5', 'properties.transaction.timeout.ms' = '600000',"
        + " 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '"
        + topic
        + "')";
  }

  /** Waits a little. Fails if the job did. */
  private static boolean isRunning(TableResult job) throws Exception {
    try {
      job.await(100, TimeUnit.MILLISECONDS);
      return false;
    } catch (TimeoutException error) {
      return true;
    }
  }

  private static long committed(Admin admin, String group) throws Exception {
    try {
      return admin
          .listConsumerGroupOffsets(group)
          .partitionsToOffsetAndMetadata()
          .get()
          .values()
          .stream()
          .mapToLong(OffsetAndMetadata::offset)
          .sum();
    } catch (ExecutionException error) {
      return 0;
    }
  }

  private static void tell(long records) {
    if (records > 0) {
      System.out.println("{\"event\":\"batch\",\"records\":{\"read\":" + records + "}}");
    }
  }
}
