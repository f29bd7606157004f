import com.xxl.job.core.context.XxlJobHelper;
import com.xxl.job.core.executor.impl.XxlJobSimpleExecutor;
import com.xxl.job.core.handler.annotation.XxlJob;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
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

    /** Succeeds with its parameter and its shard. */
    @XxlJob("echo")
    public void echo() {
        XxlJobHelper.handleSuccess(XxlJobHelper.getJobParam() + " " + XxlJobHelper.getShardIndex() + "/" + XxlJobHelper.getShardTotal());
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

    /** Sleeps for the number of seconds in its parameter, whatever interrupts it, and appends a line to the file in its parameter. */
    @XxlJob("stubborn")
    public void stubborn() throws Exception {
        String[] words = XxlJobHelper.getJobParam().split(" ");
        long end = System.nanoTime() + 1_000_000_000L * Long.parseLong(words[0]);
        for (long left; (left = end - System.nanoTime()) > 0; ) {
            try {
                Thread.sleep(1 + left / 1_000_000);
            } catch (InterruptedException e) {
                // it goes on
            }
        }
        Files.write(Paths.get(words[1]), "done\n".getBytes(), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** Writes a number of lines to the log, sleeps for a number of seconds, and writes a last line. */
    @XxlJob("lines")
    public void lines() throws Exception {
        String[] words = XxlJobHelper.getJobParam().split(" ");
        for (int i = 1; i <= Integer.parseInt(words[0]); i++) {
            XxlJobHelper.log("line {}", i);
        }
        Thread.sleep(1000 * Long.parseLong(words[1]));
        XxlJobHelper.log("the end");
    }
}
