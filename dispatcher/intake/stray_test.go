package intake_test

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/dispatcher/intake"
)

func TestIsAcknowledgement(t *testing.T) {
	for body, want := range map[string]bool{
		`{"stream":"BELFRY_RESULTS","seq":7}`:                                   true,
		`{"stream":"BELFRY_LOGS", "domain":"d", "seq":7}`:                       true,
		`{"stream":"BELFRY_RESULTS","seq":7,"duplicate": true}`:                 true,
		`{"stream":"KV_belfry_instances","seq":7}`:                              true,
		`{"error":{"err_code":10077},"stream":"BELFRY_RESULTS","seq":0}`:        true,
		`{"stream":"BELFRY_RESULTS"}`:                                           false,
		`{"stream":"BELFRY_RESULTS","seq":7,"v":1}`:                             false,
		`{"stream":"music","seq":7}`:                                            false,
		`{"stream":7,"seq":7}`:                                                  false,
		`{"amount":7}`:                                                          false,
		`[{"stream":"BELFRY_RESULTS","seq":7}]`:                                 false,
		`{"stream":"BELFRY_RESULTS","seq":7`:                                    false,
		``:                                                                      false,
		`{"stream":"BELFRY_RESULTS","seq":"` + strings.Repeat("7", 5000) + `"}`: false,
	} {
		if got := intake.IsAcknowledgement([]byte(body)); got != want {
			t.Errorf("%.80s: %v", body, got)
		}
	}
}
