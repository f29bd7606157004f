import java.io.*;
import java.lang.reflect.*;
import java.net.*;
import java.nio.file.*;
import java.util.*;

/**
 * Answers questions about cron expressions with several releases of Quartz in one JVM. Arguments: release=path.jar for each
 * release. A question is a line "release TAB zone TAB start TAB count TAB expression", start in epoch seconds. The answer is a line: the
 * next fire times in epoch seconds, or "refused: message", or "failed: exception".
 */
public class Oracle {
    public static void main(String[] args) throws Exception {
        Map<String, Class<?>> releases = new HashMap<>();
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            URL[] jar = {Paths.get(pair[1]).toUri().toURL()};
            releases.put(pair[0], new URLClassLoader(jar, Oracle.class.getClassLoader()).loadClass("org.quartz.CronExpression"));
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            String[] q = line.split("\t", -1);
            out.println(answer(releases.get(q[0]), q[1], Long.parseLong(q[2]), Integer.parseInt(q[3]), q[4]));
        }
        out.flush();
    }

    static String answer(Class<?> release, String zone, long start, int count, String expression) throws Exception {
        Object cron;
        try {
            cron = release.getConstructor(String.class).newInstance(expression);
        } catch (InvocationTargetException e) {
            return "refused: " + e.getCause().getMessage();
        }
        release.getMethod("setTimeZone", TimeZone.class).invoke(cron, TimeZone.getTimeZone(zone));
        Method next = release.getMethod("getNextValidTimeAfter", Date.class);
        StringBuilder answer = new StringBuilder();
        Date at = new Date(start * 1000);
        try {
            for (int i = 0; i < count; i++) {
                at = (Date) next.invoke(cron, at);
                if (at == null) {
                    break;
                }
                answer.append(i == 0 ? "" : " ").append(at.getTime() / 1000);
            }
        } catch (InvocationTargetException e) {
            return "failed: " + e.getCause();
        }
        return answer.toString();
    }
}
