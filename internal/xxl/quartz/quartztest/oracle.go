package quartztest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/xxl/quartz"
)

// Versions are the releases of Quartz that XXL-JOB uses.
var Versions = []quartz.Version{quartz.V232, quartz.V250, quartz.V252}

// Question asks a release for the next fire times of an expression.
type Question struct {
	Version quartz.Version
	Zone    string
	Start   time.Time
	Count   int
	Expr    string
}

// Answer is what a release answers.
type Answer struct {
	FireTimes []time.Time
	// Refused is why the release refuses the expression, or why it could not compute fire times.
	Refused string
}

// Ask returns n random questions for each release.
func Ask(seed uint64, n int) []Question {
	r := rand.New(rand.NewPCG(seed, 23))
	var questions []Question
	for range n {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.IntN(2*366*86400)) * time.Second)
		zone, expr := Zones[r.IntN(len(Zones))], Draw(r)
		if zone != "Asia/Shanghai" && zone != "UTC" && r.IntN(2) == 0 { // the evening before the clocks change
			start = pickTime(r)
		}
		for _, v := range Versions {
			questions = append(questions, Question{v, zone, start, 8, expr})
		}
	}
	return questions
}

func pickTime(r *rand.Rand) time.Time {
	changes := []time.Time{
		time.Date(2026, 3, 7, 20, 0, 0, 0, time.UTC), time.Date(2026, 10, 31, 20, 0, 0, 0, time.UTC), time.Date(2026, 3, 28, 20, 0, 0, 0, time.UTC),
		time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC), time.Date(2026, 4, 4, 10, 0, 0, 0, time.UTC), time.Date(2026, 10, 3, 10, 0, 0, 0, time.UTC),
	}
	return changes[r.IntN(len(changes))]
}

// Run asks the releases, in one JVM. The test is skipped if there is no Java or Maven.
func Run(t *testing.T, questions []Question) []Answer {
	t.Helper()
	for _, program := range []string{"javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT COVERED: Quartz itself, because %s is not installed; `.ci/long quartz` installs it", program)
		}
	}
	dir := t.TempDir()
	run := func(stdin io.Reader, name string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		var errors bytes.Buffer
		cmd.Stdin, cmd.Stderr = stdin, &errors
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", name, err, out, errors.String())
		}
		return out
	}
	args := []string{"-cp", dir, "Oracle"}
	jars := os.Getenv("BELFRY_QUARTZ_JARS") // a directory that has them
	if jars == "" {
		jars = dir
	}
	for _, v := range Versions {
		jar := filepath.Join(jars, "quartz-"+string(v)+".jar")
		if _, err := os.Stat(jar); err != nil {
			run(nil, "mvn", "-q", "-B", "dependency:copy", "-Dartifact=org.quartz-scheduler:quartz:"+string(v), "-DoutputDirectory="+jars)
		}
		args = append(args, fmt.Sprintf("%s=%s", v, jar))
	}
	run(nil, "javac", "-d", dir, filepath.Join(here(), "..", "testdata", "Oracle.java"))
	var in bytes.Buffer
	for _, q := range questions {
		fmt.Fprintln(&in, q)
	}
	lines := strings.Split(strings.TrimSuffix(string(run(&in, "java", args...)), "\n"), "\n")
	if len(lines) != len(questions) {
		t.Fatalf("%d answers to %d questions", len(lines), len(questions))
	}
	answers := make([]Answer, len(lines))
	for i, line := range lines {
		answers[i] = parseAnswer(t, line)
	}
	return answers
}

func (q Question) String() string {
	return fmt.Sprintf("%s\t%s\t%d\t%d\t%s", q.Version, q.Zone, q.Start.Unix(), q.Count, q.Expr)
}

func (a Answer) String() string {
	if a.Refused != "" {
		return a.Refused
	}
	texts := make([]string, len(a.FireTimes))
	for i, at := range a.FireTimes {
		texts[i] = strconv.FormatInt(at.Unix(), 10)
	}
	return strings.Join(texts, " ")
}

func parseAnswer(t *testing.T, line string) Answer {
	t.Helper()
	if strings.HasPrefix(line, "refused:") || strings.HasPrefix(line, "failed:") {
		return Answer{Refused: line}
	}
	var a Answer
	for text := range strings.FieldsSeq(line) {
		sec, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("an answer is not clear: %q", line)
		}
		a.FireTimes = append(a.FireTimes, time.Unix(sec, 0).UTC())
	}
	return a
}

func here() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

func recording() string { return filepath.Join(here(), "..", "testdata", "recorded.txt.gz") }

// RecordedYear is the year of the recording. Quartz's years end 100 years after the current one.
const RecordedYear = 2026

// Record writes questions and answers for Recorded.
func Record(t *testing.T, questions []Question, answers []Answer) {
	t.Helper()
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	for i, q := range questions {
		fmt.Fprintf(z, "%s\t%s\n", q, answers[i])
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recording(), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Recorded returns questions with the answers that Quartz gave when they were recorded.
func Recorded(t *testing.T) (questions []Question, answers []Answer) {
	t.Helper()
	f, err := os.Open(recording())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		p := strings.SplitN(lines.Text(), "\t", 6)
		start, err1 := strconv.ParseInt(p[2], 10, 64)
		count, err2 := strconv.Atoi(p[3])
		if err1 != nil || err2 != nil {
			t.Fatalf("the recording has the line %q", lines.Text())
		}
		questions = append(questions, Question{quartz.Version(p[0]), p[1], time.Unix(start, 0).UTC(), count, p[4]})
		answers = append(answers, parseAnswer(t, p[5]))
	}
	if len(questions) == 0 {
		t.Fatal("the recording is empty")
	}
	return questions, answers
}
