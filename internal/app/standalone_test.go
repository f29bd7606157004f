package app

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/config"
)

func settings(t *testing.T) config.Standalone {
	c := config.DefaultStandalone()
	c.DataDir, c.HTTP, c.NATSListen = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", "127.0.0.1:0"
	return c
}

// refused starts a standalone that must not start, and returns the error. It must leave nothing behind and print nothing.
func refused(t *testing.T, c config.Standalone) string {
	t.Helper()
	var out, log bytes.Buffer
	err := (&App{Stdout: &out, Stderr: &log}).Standalone(t.Context(), c)
	if err == nil {
		t.Fatal("it started")
	}
	if out.Len() > 0 {
		t.Errorf("it printed %q", out.String())
	}
	if _, err := os.Stat(filepath.Join(c.DataDir, "postgres")); !os.IsNotExist(err) {
		t.Error("it created a database")
	}
	return err.Error()
}

func TestPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := settings(t)
	c.HTTP = ln.Addr().String()
	if why := refused(t, c); !strings.Contains(why, "--http") {
		t.Error(why)
	}
}

func TestWeakAdminPassword(t *testing.T) {
	c := settings(t)
	c.AdminPassword = "short"
	if why := refused(t, c); !strings.Contains(why, "BELFRY_ADMIN_PASSWORD") || strings.Contains(why, "short") {
		t.Error(why)
	}
}

func TestForeignDataDir(t *testing.T) {
	c := settings(t)
	if err := os.Mkdir(c.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(c.DataDir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	} else {
		c.DataDir = "/usr" // belongs to root on every system
	}
	if why := refused(t, c); !strings.Contains(why, "belongs to user") {
		t.Error(why)
	}
}
