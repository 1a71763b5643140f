import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types.NestedField;

/** Prints a line for each snapshot of Iceberg tables: FOLDER TIME NEWEST, the greatest COLUMN that it added: COLUMN FOLDER... */
public final class Snapshots {
  public static void main(String[] args) {
    HadoopTables tables = new HadoopTables(new Configuration());
    for (int at = 1; at < args.length; at++) {
      Table table = tables.load(args[at]);
      NestedField column = table.schema().findField(args[0]);
      for (Snapshot snapshot : table.snapshots()) {
        long newest = 0;
        for (DataFile file : snapshot.addedDataFiles(table.io())) {
          var bound = file.upperBounds() == null ? null : file.upperBounds().get(column.fieldId());
          if (bound != null) {
            newest = Math.max(newest, (Long) Conversions.fromByteBuffer(column.type(), bound));
          }
        }
        System.out.println(args[at] + " " + snapshot.timestampMillis() + " " + newest);
      }
    }
  }
}
