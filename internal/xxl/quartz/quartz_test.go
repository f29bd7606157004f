package quartz_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/xxl/quartz"
	"github.com/belfryhq/belfry/internal/xxl/quartz/quartztest"
)

var update = flag.Bool("update", false, "ask Quartz again, and record the answers")

func TestRecordedAnswers(t *testing.T) {
	if *update {
		questions := quartztest.Ask(1, 3000)
		quartztest.Record(t, questions, quartztest.Run(t, questions))
	}
	questions, answers := quartztest.Recorded(t)
	compare(t, questions, answers, quartztest.RecordedYear)
}

// TestAgainstQuartz asks the releases themselves, on more expressions and with a new seed each day.
func TestAgainstQuartz(t *testing.T) {
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: Quartz itself, because it needs Maven; `.ci/long quartz` runs it, and TestRecordedAnswers has recorded answers")
	}
	seed := uint64(time.Now().Unix() / 86400)
	t.Logf("seed %d", seed)
	questions := quartztest.Ask(seed, 40_000)
	compare(t, questions, quartztest.Run(t, questions), time.Now().Year())
}

func compare(t *testing.T, questions []quartztest.Question, answers []quartztest.Answer, year int) {
	t.Helper()
	refused, firing := 0, 0
	for i, q := range questions {
		zone, err := time.LoadLocation(q.Zone)
		if err != nil {
			t.Fatal(err)
		}
		want := answers[i]
		e, err := quartz.Parse(q.Expr, q.Version, year)
		if refusal := strings.HasPrefix(want.Refused, "refused:"); refusal != (err != nil) {
			t.Errorf("%s: got %v, Quartz answers %s", q, err, want)
		}
		if err != nil || want.Refused != "" {
			refused++
			if err == nil {
				if at, ok := e.Next(q.Start, zone); ok {
					t.Errorf("%s: got %s, Quartz answers %s", q, at, want)
				}
			}
			continue
		}
		var got []time.Time
		for at, ok := e.Next(q.Start, zone); ok && len(got) < q.Count; at, ok = e.Next(at, zone) {
			got = append(got, at)
		}
		if len(got) > 0 {
			firing++
		}
		if !slices.EqualFunc(got, want.FireTimes, time.Time.Equal) {
			t.Errorf("%s:\n got %s\nwant %s", q, quartztest.Answer{FireTimes: got}, want)
		}
		if t.Failed() && i > len(questions)/2 {
			break
		}
	}
	t.Logf("%d questions, %d refused, %d with fire times", len(questions), refused, firing)
	if firing*2 < len(questions) || refused*50 < len(questions) {
		t.Error("the expressions are not varied enough")
	}
}

func TestVectors(t *testing.T) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 10, 12, 0, 0, 0, shanghai)
	for _, test := range []struct {
		expr    string
		version quartz.Version
		want    string
	}{
		{"0 0 0 L * ?", quartz.V232, "2026-01-31 2026-02-28 2026-03-31"},
		{"0 0 0 L * ?", quartz.V250, "2026-01-31 2026-03-31 2026-05-31"},
		{"0 0 0 L * ?", quartz.V252, "2026-01-31 2026-02-28 2026-03-31"},
		{"0 0 0 15W * ?", quartz.V232, "2026-01-15 2026-02-16 2026-03-16"},
		{"0 0 0 L-3W * ?", quartz.V232, "2026-01-28 2026-02-25 2026-03-27"},
		{"0 0 0 ? * 6#3", quartz.V232, "2026-01-16 2026-02-20 2026-03-20"},
	} {
		e, err := quartz.Parse(test.expr, test.version, 2026)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for at, ok := e.Next(start, shanghai); ok && len(got) < 3; at, ok = e.Next(at, shanghai) {
			got = append(got, at.In(shanghai).Format(time.DateOnly))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s in %s: got %s, want %s", test.expr, test.version, text, test.want)
		}
	}
}
