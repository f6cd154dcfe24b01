package onceflow.source;

import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** Makes Kafka's clients. */
final class Clients {
  private static final String ENDPOINT = "sasl.oauthbearer.token.endpoint.url";

  /** Kafka fetches tokens from addresses that this property of the JVM names, and no others. */
  private static final String ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls";

  private Clients() {}

  static KafkaConsumer consumer(Map settings) {
    allow(settings);
    return new KafkaConsumer(settings, new Raw(), new Raw());
  }

  static Admin admin(Map settings) {
    allow(settings);
    return AdminClient.create(settings);
  }

  /** The settings are the operator's, whom the property protects from those of others. */
  static synchronized void allow(Map settings) {
    String endpoint = (String) settings.get(ENDPOINT);
    String allowed = System.getProperty(ALLOWED, "");
    if (endpoint != null && !("," + allowed + ",").contains("," + endpoint + ",")) {
      System.setProperty(ALLOWED, allowed.isEmpty() ? endpoint : allowed + "," + endpoint);
    }
  }
}
