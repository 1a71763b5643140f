import java.nio.file.Files;
import java.nio.file.Path;
import jdk.jfr.FlightRecorder;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** Runs a script of Flink SQL in this JVM, all its INSERTs as one job: SCRIPT SLOTS [KEY=VALUE...]. */
public final class Statements {
  public static void main(String[] args) {
    try {
      run(Files.readString(Path.of(args[0])), Integer.parseInt(args[1]), settings(args));
    } catch (Throwable failure) {
      failure.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
    System.out.flush();
    if (FlightRecorder.isInitialized()) {
      System.exit(0); // which writes the recording
    }
    Runtime.getRuntime().halt(0); // all is committed: the cluster's own shutdown takes seconds
  }

  private static Configuration settings(String[] args) {
    Configuration found = new Configuration();
    for (int at = 2; at < args.length; at++) {
      int equals = args[at].indexOf('=');
      found.setString(args[at].substring(0, equals), args[at].substring(equals + 1));
    }
    found.setString("rest.port", "0");
    found.setString("rest.bind-port", "0");
    return found;
  }

  private static void run(String script, int slots, Configuration settings) throws Exception {
    MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
        .setConfiguration(settings).setNumTaskManagers(1).setNumSlotsPerTaskManager(slots).build());
    cluster.start();
    var address = cluster.getRestAddress().get();
    settings.setString("execution.target", "remote");
    settings.setString("rest.address", address.getHost());
    settings.setString("rest.port", "" + address.getPort());
    StreamTableEnvironment tables = StreamTableEnvironment.create(new StreamExecutionEnvironment(settings));
    tables.getConfig().set("table.local-time-zone", "UTC");
    StatementSet inserts = tables.createStatementSet();
    for (String statement : script.split(";\\s*\\n")) {
      if (statement.strip().startsWith("INSERT")) {
        inserts.addInsertSql(statement.strip());
      } else if (!statement.isBlank()) {
        tables.executeSql(statement.strip());
      }
    }
    System.out.println("@start");
    inserts.execute().await();
    System.out.println("@end");
  }
}
