package xxltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// pom lists the dependencies of testdata/executor/Executor.java.
const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId><version>1</version>
<dependencies>
<dependency><groupId>com.xuxueli</groupId><artifactId>xxl-job-core</artifactId><version>%s</version></dependency>
</dependencies></project>`

// JavaClasses compiles the test executor against a version of xxl-job-core, and returns its class path. Maven fetches the artifacts; BELFRY_XXL_JARS
// is a directory that has them, in a directory for each version. Without Java or Maven, the test is skipped.
func JavaClasses(t *testing.T, version string) (classPath string) {
	t.Helper()
	for _, program := range []string{"javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT COVERED: executors in Java, because %s is not installed; Debian's packages are default-jdk-headless and maven", program)
		}
	}
	dir := t.TempDir()
	jars := filepath.Join(os.Getenv("BELFRY_XXL_JARS"), version)
	if os.Getenv("BELFRY_XXL_JARS") == "" {
		jars = filepath.Join(dir, "jars")
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	if found, err := filepath.Glob(filepath.Join(jars, "xxl-job-core-*.jar")); err != nil || len(found) == 0 {
		file := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(file, fmt.Appendf(nil, pom, version), 0o644); err != nil {
			t.Fatal(err)
		}
		run("mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+jars)
	}
	_, file, _, _ := runtime.Caller(0)
	classPath = filepath.Join(jars, "*") + string(os.PathListSeparator) + dir
	run("javac", "-cp", classPath, "-d", dir, filepath.Join(filepath.Dir(file), "testdata", "executor", "Executor.java"))
	return classPath
}

// JavaExecutor is a running executor.
type JavaExecutor struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	out   *strings.Builder
}

// StartJava starts an executor that registers at an admin, and listens on a port of 127.0.0.1. It ends with the test.
func StartJava(t *testing.T, classPath, admin, app, token string, port int) *JavaExecutor {
	t.Helper()
	e := &JavaExecutor{t: t, ended: make(chan struct{}), out: &strings.Builder{}}
	e.cmd = exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classPath, "Executor", admin, app, token, fmt.Sprint(port), t.TempDir())
	e.cmd.Stdout, e.cmd.Stderr = e.out, e.out
	if _, err := e.cmd.StdinPipe(); err != nil { // the executor ends when this process does
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = e.cmd.Wait()
		close(e.ended)
	}()
	t.Cleanup(func() {
		_ = e.cmd.Process.Kill()
		<-e.ended
		if t.Failed() {
			t.Logf("the executor's output:\n%s", e.out)
		}
	})
	return e
}

// Signal sends a signal to the executor.
func (e *JavaExecutor) Signal(s syscall.Signal) {
	e.t.Helper()
	if err := e.cmd.Process.Signal(s); err != nil {
		e.t.Error(err)
	}
}

// Ended is closed when the executor has ended.
func (e *JavaExecutor) Ended() <-chan struct{} { return e.ended }
