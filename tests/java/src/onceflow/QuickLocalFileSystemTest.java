package onceflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.permission.FsPermission;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class QuickLocalFileSystemTest {
  @ParameterizedTest
  @ValueSource(strings = {"rwxr-x---", "r--------", "rwxrwxrwx"})
  void permissionsAreThoseThatWereAskedFor(String wanted, @TempDir Path folder) throws Exception {
    Path file = Files.createFile(folder.resolve("state"));
    QuickLocalFileSystem files = opened(new Configuration(false));

    files.setPermission(
        new org.apache.hadoop.fs.Path(file.toUri()), FsPermission.valueOf("-" + wanted));

    assertEquals(wanted, PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
  }

  @Test
  void defaultsOfYarnAndMapReduceAreDropped() throws Exception {
    Configuration configuration = new Configuration(false);
    configuration.set("yarn.nodes", "1", "yarn-default.xml");
    configuration.set("mapreduce.maps", "1", "mapred-default.xml");
    configuration.set("fs.users.own", "1", "core-site.xml");
    configuration.set("yarn.users.own", "1");

    opened(configuration).dropForeignDefaults(configuration);

    assertNull(configuration.get("yarn.nodes"));
    assertNull(configuration.get("mapreduce.maps"));
    assertNotNull(configuration.get("fs.users.own"));
    assertNotNull(configuration.get("yarn.users.own"));
  }

  private static QuickLocalFileSystem opened(Configuration configuration) throws Exception {
    QuickLocalFileSystem files = new QuickLocalFileSystem();
    files.initialize(URI.create("file:///"), configuration);
    return files;
  }
}
