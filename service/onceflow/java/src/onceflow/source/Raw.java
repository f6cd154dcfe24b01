package onceflow.source;

import java.nio.ByteBuffer;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.Deserializer;

/** Bytes where the client has them, which are not copied. */
public final class Raw implements Deserializer {
  public Object deserialize(String topic, byte[] bytes) {
    return bytes == null ? null : ByteBuffer.wrap(bytes);
  }

  public Object deserialize(String topic, Headers headers, byte[] bytes) {
    return deserialize(topic, bytes);
  }

  public Object deserialize(String topic, Headers headers, ByteBuffer bytes) {
    if (bytes == null || bytes.hasArray()) {
      return bytes;
    }
    ByteBuffer copy = ByteBuffer.allocate(bytes.remaining());
    copy.put((ByteBuffer) bytes.duplicate());
    copy.flip();
    return copy;
  }
}
