package onceflow.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ClientsTest {
  private static final String ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls";

  @BeforeEach
  @AfterEach
  void forget() {
    System.clearProperty(ALLOWED);
  }

  private static void allow(String address) {
    Clients.allow(Map.of("sasl.oauthbearer.token.endpoint.url", address));
  }

  @Test
  void tokensComeFromWhereTheSettingsSay() {
    allow("https://one/token");
    allow("https://one/token");
    allow("https://one/tok");
    assertEquals("https://one/token,https://one/tok", System.getProperty(ALLOWED));
  }

  @Test
  void otherSettingsAllowNothing() {
    Clients.allow(Map.of("bootstrap.servers", "host:9092"));
    assertNull(System.getProperty(ALLOWED));
  }
}
