package api_test

import (
	"fmt"
	"testing"

	"github.com/belfryhq/belfry/internal/explain"
)

// The codes of the contract are a closed list, the one of package explain.
func TestContractListsAllExplanations(t *testing.T) {
	w := newWorld(t)
	doc := w.must(200, "GET", "/openapi.json", "")
	if got := doc.field("components.schemas.Explanation.properties.code.enum"); fmt.Sprint(got) != fmt.Sprint(explain.Codes()) {
		t.Errorf("the contract lists %v, want %v", got, explain.Codes())
	}
}

// Descriptions of schedules follow Accept-Language, with English as the default.
func TestDescriptionsFollowTheLanguage(t *testing.T) {
	w := newWorld(t)
	job := w.must(201, "POST", "/api/v1/jobs", `{"group":"default","name":"nightly","handler":"echo","schedule":{"kind":"cron","expr":"0 2 * * *"}}`)
	const english, chinese = "At 02:00 every day, UTC", "每天 02:00，UTC"
	for accepted, want := range map[string]string{
		"": english, "en": english, "zh-CN": chinese, "zh": chinese, "zh-CN,zh;q=0.9,en;q=0.8": chinese, "en-GB,zh;q=0.5": english,
		"fr,zh;q=0.4,en;q=0.3": chinese, "de": english, "zh;q=x, en": english, "zh;q=0": english, "*": english,
	} {
		preview := w.do(w.admin, "POST", "/api/v1/schedules/preview", `{"schedule":{"kind":"cron","expr":"0 2 * * *"}}`, "Accept-Language", accepted)
		next := w.do(w.admin, "GET", fmt.Sprintf("/api/v1/jobs/%v/next", job.field("id")), "", "Accept-Language", accepted)
		if preview.field("description") != want || next.field("description") != want {
			t.Errorf("%q: %v and %v, want %s", accepted, preview.field("description"), next.field("description"), want)
		}
	}
}
