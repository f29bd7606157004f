package checker

import (
	"fmt"
	"testing"
)

func TestCronTimes(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"* * * * * *":          "[0 1 2 3 4 5 6 7 8 9]",
		"*/4 * * * * *":        "[0 4 8]",
		"1/4 * * * * ?":        "[1 5 9]",
		"0,7,2-3 * * * * *":    "[0 2 3 7]",
		"2-8/3 * * * * *":      "[2 5 8]",
		"3 */2 * * * *":        "[3]",
		"3 1-59/2 * * * *":     "[]",
		"* * 3 * * *":          "error",
		"* * * * *":            "error",
		"61 * * * * *":         "error",
		"5-2 * * * * *":        "error",
		"*/0 * * * * *":        "error",
		"nonsense * * * * *":   "error",
		"5-nonsense * * * * *": "error",
	} {
		times, err := cronTimes(expr, epoch.UnixMilli(), at(9.9).UnixMilli())
		seconds := make([]int64, len(times))
		for i, ms := range times {
			seconds[i] = (ms - epoch.UnixMilli()) / 1000
		}
		got := fmt.Sprint(seconds)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s fires at %s (%v), want %s", expr, got, err, want)
		}
	}
}
