package importer

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/xxl/quartz/quartztest"
)

// TestDifferencesAreNamed compares Belfry with recorded answers of Quartz. Each difference must have a name, each name must occur, and
// docs/xxl-job.md must list exactly these names.
func TestDifferencesAreNamed(t *testing.T) {
	questions, answers := quartztest.Recorded(t)
	found := differences(t, questions, answers)
	page, err := os.ReadFile("../../../docs/xxl-job.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "<!-- differences -->")
	list, _, _ = strings.Cut(list, "<!-- /differences -->")
	var documented []string
	for line := range strings.Lines(list) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`"); ok && strings.HasPrefix(line, "| `") {
			documented = append(documented, name)
		}
	}
	slices.Sort(documented)
	if names := slices.Sorted(maps.Keys(found)); !slices.Equal(names, documented) {
		t.Errorf("found    %v\nthe page %v", names, documented)
	}
}

// TestDifferencesAgainstQuartz is TestDifferencesAreNamed with Quartz itself, on more expressions.
func TestDifferencesAgainstQuartz(t *testing.T) {
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: Quartz itself, because it needs Maven; `.ci/long quartz` runs it, and TestDifferencesAreNamed has recorded answers")
	}
	questions := quartztest.Ask(uint64(time.Now().Unix()/86400), 40_000)
	differences(t, questions, quartztest.Run(t, questions))
}

// untilLastYear returns the times up to lastYear. Later, both have their own ends of time.
func untilLastYear(times []time.Time) []time.Time {
	i := slices.IndexFunc(times, func(at time.Time) bool { return at.Year() > lastYear })
	if i < 0 {
		return times
	}
	return times[:i]
}

// differences returns how often each name is the only name of a difference.
func differences(t *testing.T, questions []quartztest.Question, answers []quartztest.Answer) map[string]int {
	t.Helper()
	found := make(map[string]int)
	same := 0
	for i, q := range questions {
		want := answers[i]
		if strings.HasPrefix(want.Refused, "refused:") {
			continue // XXL-JOB cannot have such a job
		}
		s, err := schedule.Compile(domain.Schedule{Kind: domain.ScheduleCron, Expr: q.Expr, Dialect: domain.DialectQuartz, TimeZone: q.Zone}, schedule.Options{})
		if err == nil && want.Refused == "" {
			ours := take(s.Next, q.Start, q.Count)
			if slices.EqualFunc(untilLastYear(ours), untilLastYear(want.FireTimes), time.Time.Equal) {
				same++
				continue
			}
		}
		c := Compare(q.Expr, q.Zone, q.Version, q.Start)
		if len(c.Names) == 0 {
			t.Errorf("%s: Quartz answers %s, Belfry %s%s: the difference has no name", q, want, quartztest.Answer{FireTimes: c.Ours}, c.Refused)
		}
		if slices.Contains(c.Names, Clocks) && (q.Zone == "UTC" || q.Zone == "Asia/Shanghai") {
			t.Errorf("%s: is named %s in a zone whose clocks do not change", q, Clocks)
		}
		if len(c.Names) == 1 { // only then the name is surely the reason
			found[string(c.Names[0])]++
		}
	}
	t.Logf("%d of %d have the same fire times; %s", same, len(questions), fmt.Sprint(found))
	if same*2 < len(questions) {
		t.Error("fewer than half have the same fire times")
	}
	return found
}
