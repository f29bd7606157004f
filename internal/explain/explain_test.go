package explain_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/explain"
)

// draw returns a value of a parameter's kind in the form that Of takes, and whether it differs from the zero value.
func draw(t *rapid.T, p explain.Param) any {
	switch p.Kind {
	case explain.Number:
		return rapid.Int64Range(0, 1<<40).Draw(t, p.Name)
	case explain.String:
		return rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "\x00") }).Draw(t, p.Name)
	case explain.Flag:
		return rapid.Bool().Draw(t, p.Name)
	case explain.Lists:
	}
	items := explain.List{}
	for range rapid.IntRange(0, 3).Draw(t, p.Name) {
		var item []any
		for _, f := range p.Items {
			item = append(item, draw(t, f))
		}
		items = append(items, item)
	}
	return items
}

// plain returns a value of Of as an explanation gives it.
func plain(p explain.Param, v any) any {
	l, ok := v.(explain.List)
	if !ok {
		return v
	}
	out := []explain.Args{}
	for _, item := range l {
		a := explain.Args{}
		for i, f := range p.Items {
			a[f.Name] = plain(f, item[i])
		}
		out = append(out, a)
	}
	return out
}

// Each code can be stored and read with all its arguments, whatever their values are, and has a text.
func TestNotesKeepTheirArguments(t *testing.T) {
	for _, code := range explain.Codes() {
		t.Run(string(code), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var args []any
				want := explain.Args{}
				for _, p := range explain.Params(code) {
					v := draw(t, p)
					args = append(args, v)
					want[p.Name] = plain(p, v)
				}
				n := explain.Of(code, args...)
				e := n.Explanation()
				if e.Code != code || n.Code() != code || e.Text != n.English() || (e.Text == "") != (code == explain.Text) {
					t.Fatalf("%s reads as %+v", n, e)
				}
				got, _ := json.Marshal(e.Args)
				if all, _ := json.Marshal(want); string(got) != string(all) {
					t.Fatalf("%s has the arguments %s, want %s", n, got, all)
				}
				if code != explain.Text && explain.Read(n, n.English()).Code != code {
					t.Fatalf("%s does not count beside its own sentence", n)
				}
			})
		})
	}
}

// An argument that no text shows would be useless, and one that is missing in the table would show as zero.
func TestTextsShowAllArguments(t *testing.T) {
	for _, code := range explain.Codes() {
		var args []any
		var shown []string
		for i, p := range explain.Params(code) {
			v, marks := mark(p, fmt.Sprintf("x%dy", i), int64(701+i))
			if p.Name == "misfire" || p.Name == "latest" { // shown together
				v, marks = map[string]any{"misfire": explain.OutcomeFireAll, "latest": int64(77)}[p.Name], []string{"77"}
			}
			if p.Name == "tolerance_ms" || p.Name == "late_ms" || p.Name == "age_ms" {
				v, marks = int64(i+11)*1000, []string{fmt.Sprintf("%ds", i+11)}
			}
			args = append(args, v)
			shown = append(shown, marks...)
		}
		said := explain.Of(code, args...).English()
		for _, s := range shown {
			if !strings.Contains(said, s) {
				t.Errorf("%s says %q without %s", code, said, s)
			}
		}
	}
}

// mark returns a value that can be found in a text, and how it shows there.
func mark(p explain.Param, text string, number int64) (any, []string) {
	switch p.Kind {
	case explain.Number:
		if p.Name == "full" {
			return number, []string{fmt.Sprintf("%d of ", number)}
		}
		return number, []string{fmt.Sprint(number)}
	case explain.String:
		return text, []string{text}
	case explain.Flag:
		return p.Name != "job", nil // a pause of the job does not show the group
	case explain.Lists:
	}
	var item []any
	var all []string
	for i, f := range p.Items {
		v, marks := mark(f, fmt.Sprintf("%s_%d", text, i), number+100+int64(i))
		item, all = append(item, v), append(all, marks...)
	}
	return explain.List{item}, all
}

func TestCodesAreClosed(t *testing.T) {
	codes := explain.Codes()
	for i, c := range codes {
		if slices.Contains(codes[:i], c) || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(string(c)) {
			t.Errorf("%s", c)
		}
		if explain.Of(c).Code() != c {
			t.Errorf("%s is not in the table", c)
		}
	}
}

func TestDamagedNotes(t *testing.T) {
	for _, n := range []explain.Note{"x", "{}", "[]", "[1]", `["no_such_code",1]`, `["first","many"]`, `["no_room",[1]]`, `["no_room",[["a","x"]]]`} {
		if n.Code() != explain.Text || n.English() != "" {
			t.Errorf("%s reads as %s: %q", n, n.Code(), n.English())
		}
		if e := explain.Read(n, "as it was"); e.Code != explain.Text || e.Text != "as it was" || len(e.Args) != 0 {
			t.Errorf("%s with a sentence reads as %+v", n, e)
		}
	}
	if later := explain.Of(explain.First, 3, 0, "", "of a later release"); later.English() != "first of 3 by name" {
		t.Errorf("with another argument it says %q", later.English())
	}
}

// A binary of the previous release reads and writes only the sentence. If it has written a row, the sentence applies and the
// note is outdated.
func TestRead(t *testing.T) {
	n := explain.Of(explain.First, 3)
	for _, tt := range []struct {
		note     explain.Note
		sentence string
		want     explain.Code
		text     string
	}{
		{n, "first of 3 by name", explain.First, "first of 3 by name"},
		{n, "last of 2 by name", explain.Text, "last of 2 by name"},
		{"", "last of 2 by name", explain.Text, "last of 2 by name"},
		{n, "", explain.First, "first of 3 by name"},
	} {
		if e := explain.Read(tt.note, tt.sentence); e.Code != tt.want || e.Text != tt.text || e.Args == nil {
			t.Errorf("%s beside %q reads as %+v", tt.note, tt.sentence, e)
		}
	}
	if e := explain.Read("", ""); e != nil {
		t.Errorf("nothing reads as %+v", e)
	}
	if e := explain.Current(n, ""); e != nil {
		t.Errorf("an old note reads as %+v", e)
	}
}

func TestSmall(t *testing.T) {
	if n := explain.Of(explain.LeastLoaded, 3, 0, 4, 0, ""); n != `["least_loaded",3,0,4]` {
		t.Errorf("%s", n)
	}
}

// Alerts in Chinese say all that the English sentence says, and leave no English word but names.
func TestChineseMissed(t *testing.T) {
	pause := explain.List{{"web", "2026-01-01T00:00:00.000Z", "", "ann", "磁盘", false}}
	for _, tt := range []struct {
		note explain.Note
		want string
	}{
		{explain.Of(explain.NoScheduler, explain.OutcomeSkip, 0, 5000, 3_723_000), "调度器未能在应触发时刻后的 5 秒内处理（最多迟了 1 小时 2 分 3 秒）；策略为 skip，不补跑"},
		{explain.Of(explain.ClockStepped, explain.OutcomeSkip, 0, 30_000, "12:00:00", "12:00:30"), "数据库时钟向前跳变了 30 秒（跳变前最后读数 12:00:00，跳变后首个读数 12:00:30）；策略为 skip，不补跑"},
		{explain.Of(explain.PostgresAway, explain.OutcomeFireOnce, 0, "12:00:00", "12:01:00"), "从 12:00:00 到 12:01:00 数据库不可用；按 fire_once 策略补跑最近一次"},
		{explain.Of(explain.Restored, "12:00:00", "12:01:00"), "数据库已恢复到 12:00:00 的状态，不知道从那时到 12:01:00 执行过什么；它们可能已经执行过，不再补跑"},
		{explain.Of(explain.GroupPaused, explain.OutcomeFireAll, 100, pause), "执行器组 web 由 ann 暂停，自 2026-01-01T00:00:00.000Z 起（磁盘）；按 fire_all 策略补跑最近 100 次"},
		{explain.Of(explain.JobPaused, explain.OutcomeSkip, 0, explain.List{{"", "2026-01-01", "2026-01-02", "ann", "", true, true}}), "任务由 ann 暂停，时间为 2026-01-01 至 2026-01-02；策略为 skip，不补跑"},
		{explain.Of(explain.Unexplained, 3), "原因不明：触发时间检查既没有找到运行，也没有找到错过记录，而当时任务的版本 3 有效"},
	} {
		if got := explain.ChineseMissed(tt.note.Explanation()); got != tt.want {
			t.Errorf("%s in Chinese is %s", tt.note, got)
		}
	}
	if got := explain.ChineseMissed(explain.Sentence("as it was")); got != "as it was" || explain.ChineseMissed(nil) != "" {
		t.Errorf("a sentence is %s", got)
	}
}

func BenchmarkOf(b *testing.B) {
	for b.Loop() {
		explain.Of(explain.LeastLoaded, 3, 0, 4, 0, "")
	}
}

func BenchmarkEnglish(b *testing.B) {
	n := explain.Of(explain.LeastLoaded, 3, 0, 4, 0, "")
	for b.Loop() {
		_ = n.English()
	}
}
