package alert

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPayloadOnThePage checks that every field of the example in docs/alerts.md exists in a webhook's body.
func TestPayloadOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("the page shows no body")
	}
	d := json.NewDecoder(strings.NewReader(string(example[1])))
	d.DisallowUnknownFields()
	var m hook
	if err := d.Decode(&m); err != nil || m.V != 1 || m.JobID == 0 || m.Text == "" {
		t.Errorf("%v: %+v", err, m)
	}
}
