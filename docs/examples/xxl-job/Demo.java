import com.xxl.job.core.context.XxlJobHelper;
import com.xxl.job.core.executor.impl.XxlJobSimpleExecutor;
import com.xxl.job.core.handler.annotation.XxlJob;
import java.net.ServerSocket;
import java.util.List;

/**
 * An ordinary executor of XXL-JOB. It knows nothing about Belfry: the address of the gateway stands where the address of an admin would stand.
 * Arguments: admin address, app name, access token, directory of logs.
 */
public class Demo {
    public static void main(String[] args) throws Exception {
        XxlJobSimpleExecutor executor = new XxlJobSimpleExecutor();
        executor.setAdminAddresses(args[0]);
        executor.setAppname(args[1]);
        executor.setAccessToken(args[2]);
        executor.setIp("127.0.0.1");
        executor.setPort(freePort());
        executor.setLogPath(args[3]);
        executor.setLogRetentionDays(3);
        executor.setXxlJobBeanList(List.of(new Demo()));
        Runtime.getRuntime().addShutdownHook(new Thread(executor::destroy));
        executor.start();
        Thread.currentThread().join();
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    /** Writes a report, line by line, for some seconds. */
    @XxlJob("report")
    public void report() throws Exception {
        XxlJobHelper.log("report for {}", XxlJobHelper.getJobParam());
        for (int page = 1; page <= 5; page++) {
            Thread.sleep(1000);
            XxlJobHelper.log("page {} of 5", page);
        }
        XxlJobHelper.handleSuccess("5 pages");
    }

    /** Works on its shard. */
    @XxlJob("shard")
    public void shard() {
        XxlJobHelper.log("shard {} of {}", XxlJobHelper.getShardIndex(), XxlJobHelper.getShardTotal());
    }

    /** Fails each second time. */
    @XxlJob("unreliable")
    public void unreliable() {
        if (XxlJobHelper.getLogId() % 2 == 0) {
            XxlJobHelper.handleFail("the other system does not answer");
        }
    }

    /** Runs until it is killed. */
    @XxlJob("endless")
    public void endless() throws Exception {
        for (int minute = 0;; minute++) {
            XxlJobHelper.log("still running after {} minutes", minute);
            Thread.sleep(60_000);
        }
    }
}
