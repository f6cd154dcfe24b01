package onceflow.tests;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Local files that take their time to appear. */
public class SlowFiles extends RawLocalFileSystem {
  /** Also in slow_files.py. */
  private static final long DELAY_MS = 600L;

  public URI getUri() {
    return URI.create("slow:///");
  }

  public void setPermission(Path path, FsPermission wanted) {}

  public boolean rename(Path from, Path to) throws IOException {
    try {
      Thread.sleep(DELAY_MS);
    } catch (InterruptedException error) {
      throw new IOException(error);
    }
    return super.rename(from, to);
  }
}
