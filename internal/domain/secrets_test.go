package domain

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMaskParam(t *testing.T) {
	for param, want := range map[string]string{
		"":                               "",
		"2026-11":                        "2026-11",
		"the token is expired":           "the token is expired",
		`{"month": "2026-11", "n": 1.0}`: `{"month": "2026-11", "n": 1.0}`,
		`{"db_password":"hunter2","n":12345678901234567890,"url":"<a>"}`: `{"db_password":"•••","n":12345678901234567890,"url":"<a>"}`,
		`{"a":[{"apiKey":"k"},{"apiKey":null}]}`:                         `{"a":[{"apiKey":"•••"},{"apiKey":null}]}`,
		`{"auth":{"token":{"value":"x"}}}`:                               `{"auth":{"token":"•••"}}`,
		`["postgres://u:pw@host/db"]`:                                    `["postgres://u:•••@host/db"]`,
		"password=hunter2 user=ann":                                      "password=••• user=ann",
		`X-Auth-Token: "a b", next`:                                      "X-Auth-Token: •••, next",
		"Authorization: Bearer abc.def":                                  "Authorization: •••",
		"--api-key abc --dry-run":                                        "--api-key ••• --dry-run",
		"https://ann:pw@example.org/x?access_key=k&b=1":                  "https://ann:•••@example.org/x?access_key=•••&b=1",
		`{"password": "cut off`:                                          `{"password": •••`,
	} {
		if got := MaskParam(param); got != want {
			t.Errorf("%s is shown as %s, not %s", param, got, want)
		}
	}
}

func FuzzMaskParam(f *testing.F) {
	f.Add("x", "y")
	f.Fuzz(func(t *testing.T, before, secret string) {
		if len(secret) < 8 || strings.ContainsAny(secret, "\"\\•") || strings.Contains(before, secret) {
			return
		}
		b, err := json.Marshal(map[string]string{"before": before, "password": secret})
		if err != nil {
			t.Fatal(err)
		}
		if masked := MaskParam(string(b)); !json.Valid([]byte(masked)) || strings.Contains(masked, `"password":"`+secret) {
			t.Errorf("%s is shown as %s", b, masked)
		}
	})
}
