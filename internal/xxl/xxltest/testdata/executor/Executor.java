import com.xxl.job.core.context.XxlJobHelper;
import com.xxl.job.core.executor.impl.XxlJobSimpleExecutor;
import com.xxl.job.core.handler.annotation.XxlJob;
import java.util.Collections;

/**
 * An executor of XXL-JOB with the handlers that tests need. Arguments: admin address, app name, access token, port, directory of logs. It
 * ends when its standard input ends or on SIGTERM, as an application on Spring does.
 */
public class Executor {
    public static void main(String[] args) throws Exception {
        XxlJobSimpleExecutor executor = new XxlJobSimpleExecutor();
        executor.setAdminAddresses(args[0]);
        executor.setAppname(args[1]);
        executor.setAccessToken(args[2]);
        executor.setIp("127.0.0.1");
        executor.setPort(Integer.parseInt(args[3]));
        executor.setLogPath(args[4]);
        executor.setLogRetentionDays(-1);
        executor.setXxlJobBeanList(Collections.<Object>singletonList(new Executor()));
        executor.start();
        Runtime.getRuntime().addShutdownHook(new Thread(executor::destroy));
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }

    /** Writes its parameters to the log, and succeeds. */
    @XxlJob("demo")
    public void demo() {
        XxlJobHelper.log("job {} param {} shard {}/{}", XxlJobHelper.getJobId(), XxlJobHelper.getJobParam(), XxlJobHelper.getShardIndex(), XxlJobHelper.getShardTotal());
        XxlJobHelper.log("second line");
        XxlJobHelper.handleSuccess("done");
    }

    @XxlJob("fail")
    public void fail() {
        XxlJobHelper.handleFail("no such month");
    }

    @XxlJob("throw")
    public void fault() {
        throw new IllegalStateException("broken");
    }

    /** Sleeps for the number of seconds in its parameter. */
    @XxlJob("sleep")
    public void sleep() throws Exception {
        Thread.sleep(1000 * Long.parseLong(XxlJobHelper.getJobParam()));
    }
}
