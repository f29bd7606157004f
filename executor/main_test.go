package executor

import (
	"encoding/json"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The tests that need a NATS server are in internal/sdktest, outside this module.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quietLogger() *slog.Logger {
	if os.Getenv("BELFRY_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
