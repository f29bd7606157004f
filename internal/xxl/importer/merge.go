package importer

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belfryhq/belfry/internal/domain"
)

// Base returns the form of a job that the server keeps to recognize later edits: without the script's code, which its digest stands
// for.
func Base(spec domain.JobSpec) domain.JobSpec {
	if spec.Script != nil {
		lean := *spec.Script
		lean.SHA256, lean.Code, lean.Version = domain.Digest(lean.Code), "", 0
		spec.Script = &lean
	}
	return spec
}

// Kept is a field that a person changed in Belfry.
type Kept struct {
	Field  string `json:"field"`
	Belfry string `json:"belfry"`
	XXLJob string `json:"xxl_job"`
}

func (k Kept) String() string {
	return fmt.Sprintf("%s: %s; XXL-JOB has %s", k.Field, k.Belfry, k.XXLJob)
}

// unit is a part of a job that an import sets as a whole.
type unit struct {
	name string
	get  func(*domain.JobSpec) any
	set  func(to, from *domain.JobSpec)
}

// units are the parts that an import owns until a person changes them. The others are set only when the job is created: whether it is
// enabled, its tags, and what XXL-JOB does not have.
var units = []unit{
	{"name", func(s *domain.JobSpec) any { return s.Name }, func(to, from *domain.JobSpec) { to.Name = from.Name }},
	{"description", func(s *domain.JobSpec) any { return s.Description }, func(to, from *domain.JobSpec) { to.Description = from.Description }},
	{"author", func(s *domain.JobSpec) any { return s.Author }, func(to, from *domain.JobSpec) { to.Author = from.Author }},
	{"schedule", func(s *domain.JobSpec) any { return timesOf(s.Schedule) }, func(to, from *domain.JobSpec) { setTimes(&to.Schedule, from.Schedule) }},
	{"misfire", func(s *domain.JobSpec) any { return s.Misfire }, func(to, from *domain.JobSpec) { to.Misfire = from.Misfire }},
	{"handler", func(s *domain.JobSpec) any { return s.Handler }, func(to, from *domain.JobSpec) { to.Handler = from.Handler }},
	{"script", func(s *domain.JobSpec) any { return scriptOf(s.Script) }, func(to, from *domain.JobSpec) { to.Script = from.Script }},
	{"param", func(s *domain.JobSpec) any { return s.Param }, func(to, from *domain.JobSpec) { to.Param = from.Param }},
	{"route", func(s *domain.JobSpec) any { return s.Route }, func(to, from *domain.JobSpec) { to.Route = from.Route }},
	{"block", func(s *domain.JobSpec) any { return s.Block }, func(to, from *domain.JobSpec) { to.Block = from.Block }},
	{"block_scope", func(s *domain.JobSpec) any { return s.BlockScope }, func(to, from *domain.JobSpec) { to.BlockScope = from.BlockScope }},
	{"timeout", func(s *domain.JobSpec) any { return s.Timeout }, func(to, from *domain.JobSpec) { to.Timeout = from.Timeout }},
	{"retries", func(s *domain.JobSpec) any { return s.Retries }, func(to, from *domain.JobSpec) { to.Retries = from.Retries }},
	{"retry_backoff", func(s *domain.JobSpec) any { return s.RetryBackoff }, func(to, from *domain.JobSpec) { to.RetryBackoff = from.RetryBackoff }},
	{"children", func(s *domain.JobSpec) any { return childrenOf(s.Children) }, func(to, from *domain.JobSpec) { to.Children = from.Children }},
	{"alert", func(s *domain.JobSpec) any { return alertOf(s.Alert) }, func(to, from *domain.JobSpec) { to.Alert = from.Alert }},
}

func timesOf(s domain.Schedule) any {
	return domain.Schedule{Kind: s.Kind, Expr: s.Expr, Dialect: s.Dialect, Every: s.Every, Delay: s.Delay, At: s.At, TimeZone: s.TimeZone, StartAt: s.StartAt}
}

// setTimes keeps what XXL-JOB does not have: the end, the jitter and the calendar.
func setTimes(to *domain.Schedule, from domain.Schedule) {
	end, jitter, calendar := to.EndAt, to.Jitter, to.Calendar
	*to = from
	to.EndAt, to.Jitter, to.Calendar = end, jitter, calendar
}

func scriptOf(s *domain.Script) any {
	if s == nil {
		return nil
	}
	digest := s.SHA256
	if s.Code != "" {
		digest = domain.Digest(s.Code)
	}
	return map[string]string{"language": s.Language, "sha256": digest}
}

func childrenOf(children []domain.Child) any {
	ids := []domain.Child{}
	return append(ids, children...)
}

func alertOf(a domain.Alert) any {
	return domain.Alert{Channels: append([]string{}, a.Channels...), On: append([]domain.AlertKind{}, a.On...)}
}

// Merge returns the job after another import: base is what the last import wrote, now what the job is, theirs what XXL-JOB says. updated are
// the fields that the import changes; kept are those that a person changed, so that they stay.
func Merge(base, now, theirs domain.JobSpec) (merged domain.JobSpec, updated []string, kept []Kept) {
	merged = now
	for _, u := range units {
		was, is, wants := encode(u.get(&base)), encode(u.get(&now)), encode(u.get(&theirs))
		if u.name == "schedule" {
			if sameGrid(base.Schedule, theirs.Schedule) {
				wants = was
			}
			if sameGrid(now.Schedule, theirs.Schedule) {
				wants = is
			}
		}
		switch {
		case is == wants:
		case is == was:
			u.set(&merged, &theirs)
			updated = append(updated, u.name)
		default:
			kept = append(kept, Kept{u.name, short(is), short(wants)})
		}
	}
	if slices.Contains(updated, "script") != slices.Contains(updated, "handler") && (merged.Script != nil) == (merged.Handler != "") {
		// A person changed one of the two, and XXL-JOB the other. A job has exactly one of them.
		merged.Script, merged.Handler = now.Script, now.Handler
		updated = slices.DeleteFunc(updated, func(f string) bool { return f == "script" || f == "handler" })
	}
	return merged, updated, kept
}

func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("importer: encode a part of a job: %v", err)) // it always has a JSON encoding
	}
	return string(raw)
}

func short(raw string) string { return clip(raw, 120) }
