package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// unrecorded makes a job that is one hour old and fires every second, but has no runs and no missed ledger.
func unrecorded(w *world, name string) (path string, from time.Time) {
	w.t.Helper()
	path = w.job(`{"group":"default","name":"` + name + `","handler":"echo","schedule":{"kind":"cron","expr":"* * * * * *","time_zone":"Europe/Berlin"}}`)
	id := path[strings.LastIndex(path, "/")+1:]
	at := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	w.exec(`UPDATE job_versions SET valid_from = $2::timestamptz, created_at = $2::timestamptz WHERE job_id = $1::text::bigint`, id, at)
	w.exec(`UPDATE job_due SET next_fire_time = now() + interval '1 hour', next_due_at = now() + interval '1 hour' WHERE job_id = $1::text::bigint`, id)
	return path, at
}

func TestFireCheck(t *testing.T) {
	w := newWorld(t)
	path, _ := unrecorded(w, "tick")
	_, from := unrecorded(w, "tock") // from is of the later job, because a second may end between the two
	q := url.Values{"since": {domain.At(from).String()}, "until": {domain.At(from.Add(10 * time.Minute)).String()}}
	unexplained, jobs, cursor := 0, 0, ""
	for pages := 0; ; pages++ {
		q.Set("cursor", cursor)
		a := w.must(200, "GET", "/api/v1/audit/fires?"+q.Encode(), "")
		n, _ := a.field("counts.unexplained").(float64)
		finished, _ := a.field("jobs").(float64)
		unexplained, jobs = unexplained+int(n), jobs+int(finished)
		if pages == 0 && a.field("of_jobs") != 2.0 {
			t.Errorf("of_jobs is %v", a.field("of_jobs"))
		}
		if a.field("since") != q.Get("since") || a.field("until") != q.Get("until") {
			t.Errorf("the page covers %v to %v", a.field("since"), a.field("until"))
		}
		if cursor, _ = a.field("next_cursor").(string); cursor == "" {
			break
		}
		if pages > 100 {
			t.Fatal("the pages have no end")
		}
	}
	if unexplained != 1200 || jobs != 2 {
		t.Errorf("%d unexplained of %d jobs, want 1200 of 2", unexplained, jobs)
	}
	id := path[strings.LastIndex(path, "/")+1:]
	one := w.must(200, "GET", "/api/v1/audit/fires?job_id="+id+"&since="+domain.At(from).String()+"&until="+domain.At(from.Add(time.Minute)).String(), "")
	if one.field("counts.unexplained") != 60.0 || one.field("items.0.job_name") != "tick" || one.field("items.0.count") != 60.0 || one.field("items.0.group") != "default" {
		t.Errorf("of one job: %s", one.body)
	}
}

// Findings and answers follow Accept-Language.
func TestFireCheckFollowsTheLanguage(t *testing.T) {
	w := newWorld(t)
	path, from := unrecorded(w, "tick")
	id := path[strings.LastIndex(path, "/")+1:]
	for at, want := range map[string]string{
		path + "/why?at=" + domain.At(from.Add(time.Minute)).String():                                                                     "它既没有运行，也没有错过记录，而当时任务的版本 1 有效且已启用。",
		path + "/why?at=" + domain.At(from.Add(time.Minute+500*time.Millisecond)).String():                                                "不是触发时间：版本 1（由 admin 于 ",
		"/api/v1/audit/fires?job_id=" + id + "&since=" + domain.At(from).String() + "&until=" + domain.At(from.Add(time.Minute)).String(): "它既没有运行，也没有错过记录，而当时任务的版本 1 有效且已启用",
	} {
		for accepted, chinese := range map[string]bool{"": false, "zh-CN": true} {
			a := w.do(w.admin, "GET", at, "", "Accept-Language", accepted)
			text := fmt.Sprint(a.field("answer"))
			if strings.Contains(at, "/audit/") {
				text = fmt.Sprint(a.field("items.0.text"))
			}
			if a.status != 200 || strings.Contains(text, want) != chinese {
				t.Errorf("%s, %q: %s", at, accepted, a.body)
			}
		}
	}
}

func TestWhy(t *testing.T) {
	w := newWorld(t)
	path, from := unrecorded(w, "tick")
	ask := func(at string) answer {
		t.Helper()
		return w.must(200, "GET", path+"/why?at="+url.QueryEscape(at), "")
	}
	fire := from.Add(time.Minute)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{domain.At(fire).String(), fire.In(berlin).Format(time.RFC3339), fire.In(berlin).Format("2006-01-02T15:04:05"), fire.In(berlin).Format("2006-01-02 15:04:05")} {
		a := ask(at)
		if a.field("fate") != "unexplained" || fmt.Sprint(a.field("is_fire_time")) != "true" || a.field("at") != domain.At(fire).String() ||
			a.field("time_zone") != "Europe/Berlin" || a.field("version") != 1.0 {
			t.Errorf("at %s: %s", at, a.body)
		}
	}
	a := ask(domain.At(fire.Add(500 * time.Millisecond)).String())
	if fmt.Sprint(a.field("is_fire_time")) != "false" || a.field("fate") != nil || a.field("fire_time_before") != domain.At(fire).String() ||
		a.field("fire_time_after") != domain.At(fire.Add(time.Second)).String() || !strings.Contains(fmt.Sprint(a.field("answer")), "is no fire time") {
		t.Errorf("between two: %s", a.body)
	}
	w.must(204, "DELETE", path, "")
	if a := ask(domain.At(time.Now().Add(time.Minute)).String()); !strings.Contains(fmt.Sprint(a.field("answer")), "deleted by admin") {
		t.Errorf("of a deleted job: %s", a.body)
	}
}
