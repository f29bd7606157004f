package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCalendarCommands(t *testing.T) {
	newRealConsole(t)
	run := func(code int, stdin, args string, want ...string) string {
		t.Helper()
		r := belfry(t, stdin, strings.Fields(args)...)
		for _, s := range want {
			if r.code != code || !strings.Contains(r.stdout+r.stderr, s) {
				t.Fatalf("belfry %s: exit code %d, want %d and %q:\n%s%s", args, r.code, code, s, r.stdout, r.stderr)
			}
		}
		return r.stdout
	}
	dates := filepath.Join(t.TempDir(), "dates.txt")
	if err := os.WriteFile(dates, []byte("# closed\n2099-01-01\n\n  2098-12-25 # twice\r\n2098-12-25\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(ExitDone, "", "calendar create closed --weekday sunday,saturday --date 2020-12-24 -f "+dates, "saturday, sunday", "2020-12-24, 2098-12-25, 2099-01-01")
	run(ExitDone, "", "calendar create empty -o json", `"dates": []`)
	run(ExitDone, strings.Replace(reportYAML, "kind: cron,", "kind: cron, calendar: closed,", 1), "job apply -f -", "created")
	run(ExitDone, "", "calendar list", "closed", "saturday, sunday  3      2098-12-25  1")
	run(ExitDone, "", "job list --calendar closed -o json", `"calendar": "closed"`)
	run(ExitDone, "", "job list --calendar empty -o json", "[]")
	run(ExitDone, "", "job list", ", except closed")

	run(ExitDone, "", "calendar update closed --remove 2099-01-01 --add 2097-05-01", "2020-12-24, 2097-05-01, 2098-12-25", "saturday, sunday", "version   2")
	run(ExitDone, "2030-01-01\n", "calendar update closed -f - --weekday none --description words -o yaml", "weekdays: []", `- "2030-01-01"`, "description: words")
	run(ExitDone, "", "calendar update closed --date none -o json", `"dates": []`, "words")
	run(ExitDone, "", "job get default/report -o json", `"version": 4`)
	run(ExitUsage, "", "calendar update closed --remove 2030-01-01", "the calendar does not have this date")
	run(ExitFailed, "2030-01-01\nnever\n", "calendar update closed -f -", `line 2: "never" is not a date`)
	run(ExitFailed, "", "calendar update closed --weekday sat --date 2030-02-30", "weekdays[0]", "dates[0]")
	run(ExitFailed, "", "calendar delete closed", "jobs use the calendar", "default/report (1)")
	run(ExitDone, "", "calendar delete empty", "empty deleted")
	run(ExitFailed, "", "calendar get empty", "there is no calendar of this name")
}
