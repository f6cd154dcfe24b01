package onceflow.tests;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import onceflow.sink.JoinedProducer;
import onceflow.sink.RefusedException;

/**
 * Writers in a process of their own, each by its name; a line of input is a step, and has one of
 * output.
 */
public class WriterProbe {
  private final Map writers = new HashMap();
  private final Map settings = new HashMap();

  public static void main(String[] settings) throws IOException {
    WriterProbe probe = new WriterProbe();
    for (int at = 0; at < settings.length; at++) {
      String[] setting = settings[at].split("=", 2);
      probe.settings.put(setting[0], setting[1]);
    }
    BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
    for (String line = steps.readLine(); line != null; line = steps.readLine()) {
      System.out.println(probe.answer(line.split(" ")));
    }
    System.exit(0);
  }

  private String answer(String[] step) {
    try {
      act(step, (JoinedProducer) writers.get(step[1]));
      return "done";
    } catch (RefusedException refused) {
      return refused.getMessage().replace('\n', ' ');
    } catch (RuntimeException failed) {
      return failed.toString().replace('\n', ' ');
    }
  }

  private void act(String[] step, JoinedProducer writer) {
    if (step[0].equals("join")) {
      if (writer == null) {
        writer = new JoinedProducer(settings, step[2]);
        writers.put(step[1], writer);
      }
      writer.join(Long.parseLong(step[3]), Short.parseShort(step[4]));
    } else if (step[0].equals("send")) {
      long now = System.currentTimeMillis();
      int count = Integer.parseInt(step[4]);
      for (int number = 0; number < count; number++) {
        byte[] value = (step[1] + number).getBytes();
        writer.send(step[2], Integer.parseInt(step[3]), now, null, value, null);
      }
    } else if (step[0].equals("flush")) {
      writer.flush();
    } else if (step[0].equals("leave")) {
      writer.leave();
    } else {
      throw new IllegalArgumentException(step[0]);
    }
  }
}
