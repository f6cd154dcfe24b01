package onceflow;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local files, but permissions are set without a process. */
public class QuickLocalFileSystem extends LocalFileSystem {
  public QuickLocalFileSystem() {
    super(new QuickRaw());
  }

  public void dropForeignDefaults(Configuration configuration) {
    List foreign = new ArrayList();
    for (Iterator entries = configuration.iterator(); entries.hasNext(); ) {
      String name = (String) ((Map.Entry) entries.next()).getKey();
      String[] sources = configuration.getPropertySources(name);
      String source = sources == null ? "" : sources[sources.length - 1];
      if (source.equals("yarn-default.xml") || source.equals("mapred-default.xml")) {
        foreign.add(name);
      }
    }
    for (int i = 0; i < foreign.size(); i++) {
      configuration.unset((String) foreign.get(i));
    }
  }

  public static class QuickRaw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission wanted) throws IOException {
      if (wanted.getStickyBit()) { // which Java has no name for
        super.setPermission(path, wanted);
        return;
      }
      String text =
          wanted.getUserAction().SYMBOL
              + wanted.getGroupAction().SYMBOL
              + wanted.getOtherAction().SYMBOL;
      Files.setPosixFilePermissions(
          pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }
  }
}
