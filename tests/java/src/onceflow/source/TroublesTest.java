package onceflow.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
import javax.security.auth.login.LoginException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.security.oauthbearer.internals.secured.UnretryableException;
import org.junit.jupiter.api.Test;

class TroublesTest {
  private static String told(Throwable cause) {
    KafkaException failed = new KafkaException("Failed to construct kafka consumer", cause);
    return Troubles.cannotMakeClient(Map.of("bootstrap.servers", "host:9092"), failed).getMessage();
  }

  private static Throwable login(Throwable cause) {
    LoginException login = new LoginException("An internal error occurred");
    login.initCause(cause);
    return new KafkaException(login);
  }

  @Test
  void aNameThatNobodyKnowsAtTheMomentPasses() {
    String told = told(new ConfigException("No resolvable bootstrap urls given in x"));
    assertEquals(
        "onceflow.errors.RetriableError: cannot make a Kafka client: host:9092; found"
            + " ConfigException: No resolvable bootstrap urls given in x; the task is tried again",
        told);
  }

  @Test
  void anEndpointOfTokensThatDoesNotAnswerPasses() {
    assertTrue(told(login(new IOException("refused"))).contains("RetriableError"));
  }

  @Test
  void anEndpointOfTokensThatRefusesDoesNot() {
    String told = told(login(new UnretryableException(new IOException("401"))));
    assertTrue(told.startsWith("onceflow.errors.ConfigError: cannot make"));
    assertTrue(told.endsWith("; correct the client properties"));
  }

  @Test
  void aWrongPropertyDoesNot() {
    assertTrue(told(new ConfigException("Invalid value x")).contains("ConfigError"));
  }
}
