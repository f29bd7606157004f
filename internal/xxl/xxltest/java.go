package xxltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// pom lists the dependencies of the programs in testdata/executor and testdata/executor22.
const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId><version>1</version>
<dependencies>
<dependency><groupId>com.xuxueli</groupId><artifactId>xxl-job-core</artifactId><version>%s</version></dependency>
</dependencies></project>`

// JavaLibraries returns the class path of a version of xxl-job-core and its dependencies. Maven fetches them; BELFRY_XXL_JARS is a directory that has
// them, in a directory for each version. Without Java or Maven, the test is skipped.
func JavaLibraries(t *testing.T, version string) (classPath string) {
	t.Helper()
	needs(t, "executors in Java", "default-jdk-headless and maven", "javac", "mvn")
	dir := t.TempDir()
	jars := filepath.Join(os.Getenv("BELFRY_XXL_JARS"), version)
	if os.Getenv("BELFRY_XXL_JARS") == "" {
		jars = filepath.Join(dir, "jars")
	}
	if found, err := filepath.Glob(filepath.Join(jars, "xxl-job-core-*.jar")); err != nil || len(found) == 0 {
		file := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(file, fmt.Appendf(nil, pom, version), 0o644); err != nil {
			t.Fatal(err)
		}
		runs(t, exec.CommandContext(t.Context(), "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+jars))
	}
	return filepath.Join(jars, "*")
}

// Java compiles the program for a version of xxl-job-core.
func Java(t *testing.T, version string) Program {
	t.Helper()
	source := "executor"
	if strings.HasPrefix(version, "2.2.") { // handlers were other methods
		source = "executor22"
	}
	dir := t.TempDir()
	classPath := JavaLibraries(t, version) + string(os.PathListSeparator) + dir
	runs(t, exec.CommandContext(t.Context(), "javac", "-cp", classPath, "-d", dir, testdata(source, "Executor.java")))
	return Program{func(s settings) *exec.Cmd {
		return exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classPath, "Executor", s.admin, s.app, s.token, fmt.Sprint(s.port), s.logs)
	}}
}

// testdata returns the path of a file in this package's directory testdata.
func testdata(names ...string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "testdata"}, names...)...)
}
