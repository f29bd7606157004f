import com.xxl.job.core.biz.model.ReturnT;
import com.xxl.job.core.executor.XxlJobExecutor;
import com.xxl.job.core.handler.IJobHandler;
import com.xxl.job.core.log.XxlJobLogger;
import com.xxl.job.core.util.ShardingUtil;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;

/** The same program as in the directory executor, for version 2.2, whose handlers get their parameter and return their result. */
public class Executor {
    interface Body {
        ReturnT<String> run(String param) throws Exception;
    }

    static void handler(String name, Body body) {
        XxlJobExecutor.registJobHandler(name, new IJobHandler() {
            @Override
            public ReturnT<String> execute(String param) throws Exception {
                return body.run(param);
            }
        });
    }

    static ReturnT<String> success(String text) {
        return new ReturnT<>(ReturnT.SUCCESS_CODE, text);
    }

    static String shard() {
        return ShardingUtil.getShardingVo().getIndex() + "/" + ShardingUtil.getShardingVo().getTotal();
    }

    public static void main(String[] args) throws Exception {
        handler("demo", param -> {
            XxlJobLogger.log("param {} shard {}", param, shard());
            XxlJobLogger.log("second line");
            return success("done");
        });
        handler("echo", param -> success(param + " " + shard()));
        handler("fail", param -> new ReturnT<>(ReturnT.FAIL_CODE, "no such month"));
        handler("sleep", param -> {
            Thread.sleep(1000 * Long.parseLong(param));
            return success("slept");
        });
        handler("stubborn", param -> {
            String[] words = param.split(" ");
            long end = System.nanoTime() + 1_000_000_000L * Long.parseLong(words[0]);
            for (long left; (left = end - System.nanoTime()) > 0; ) {
                try {
                    Thread.sleep(1 + left / 1_000_000);
                } catch (InterruptedException e) {
                    // it goes on
                }
            }
            Files.write(Paths.get(words[1]), "done\n".getBytes(), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            return success("");
        });
        handler("lines", param -> {
            String[] words = param.split(" ");
            for (int i = 1; i <= Integer.parseInt(words[0]); i++) {
                XxlJobLogger.log("line {}", i);
            }
            Thread.sleep(1000 * Long.parseLong(words[1]));
            XxlJobLogger.log("the end");
            return success("");
        });

        XxlJobExecutor executor = new XxlJobExecutor();
        executor.setAdminAddresses(args[0]);
        executor.setAppname(args[1]);
        executor.setAccessToken(args[2]);
        executor.setIp("127.0.0.1");
        executor.setPort(Integer.parseInt(args[3]));
        executor.setLogPath(args[4]);
        executor.setLogRetentionDays(-1);
        executor.start();
        Runtime.getRuntime().addShutdownHook(new Thread(executor::destroy));
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}
