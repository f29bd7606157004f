import com.google.gson.Gson;
import com.xxl.job.core.context.XxlJobHelper;
import com.xxl.job.core.executor.impl.XxlJobSimpleExecutor;
import com.xxl.job.core.handler.annotation.XxlJob;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collections;
import java.util.Random;

/**
 * An executor of XXL-JOB whose handler writes its starts and ends to a file. Arguments: admin addresses, app name, access token, address, port,
 * directory of logs, file of notes. It ends on SIGTERM, as an application on Spring does.
 */
public class Noting {
    /** What a run does: see the type work of the fault test. */
    static class Work {
        int ms;
        int ms_max;
        int fail;
    }

    private final Path notes;
    private final String boot = ProcessHandle.current().pid() + "-" + Long.toString(System.currentTimeMillis(), 36);

    Noting(Path notes) {
        this.notes = notes;
    }

    public static void main(String[] args) throws Exception {
        XxlJobSimpleExecutor executor = new XxlJobSimpleExecutor();
        executor.setAdminAddresses(args[0]);
        executor.setAppname(args[1]);
        executor.setAccessToken(args[2]);
        executor.setIp(args[3]);
        executor.setPort(Integer.parseInt(args[4]));
        executor.setLogPath(args[5]);
        executor.setLogRetentionDays(-1);
        executor.setXxlJobBeanList(Collections.<Object>singletonList(new Noting(Path.of(args[6]))));
        Runtime.getRuntime().addShutdownHook(new Thread(executor::destroy));
        executor.start();
        Thread.currentThread().join();
    }

    @XxlJob("work")
    public void work() throws Exception {
        long id = XxlJobHelper.getLogId();
        note("S", id, "");
        Work work = new Gson().fromJson(XxlJobHelper.getJobParam(), Work.class);
        Random random = new Random(id);
        int ms = work.ms;
        if (work.ms_max > ms) {
            ms += random.nextInt(work.ms_max - ms);
        }
        if (random.nextInt(10) == 0) {
            XxlJobHelper.log("working for {} ms", ms);
        }
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            note("E", id, " cancelled");
            throw e;
        }
        if (random.nextInt(100) < work.fail) {
            note("E", id, " error");
            XxlJobHelper.handleFail("bad luck");
            return;
        }
        note("E", id, " ok");
        XxlJobHelper.handleSuccess(Long.toString(id));
    }

    /** Appends a line with one write, so that lines of several threads do not mix. */
    private void note(String kind, long id, String outcome) throws IOException {
        String line = kind + " " + id + " " + boot + " " + System.currentTimeMillis() + outcome + "\n";
        Files.write(notes, line.getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
