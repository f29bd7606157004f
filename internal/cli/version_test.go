package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/belfryhq/belfry/internal/build"
)

func TestVersion(t *testing.T) {
	isolate(t)
	b := build.Read()
	belfry(t, "", "version").want(t, ExitDone, "belfry  "+b.Version+"\n", "go      "+runtime.Version()+"\n", fmt.Sprintf("schema  %d\n", b.Schema), "wire    1\n")
	r := belfry(t, "", "version", "-o", "json")
	r.want(t, ExitDone)
	var got build.Info
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || got != b {
		t.Errorf("the JSON is %s (%v)", r.stdout, err)
	}
	belfry(t, "", "--version").want(t, ExitDone, "belfry "+b.Version+"\n")
}
