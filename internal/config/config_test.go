package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestDefaultsAreValid(t *testing.T) {
	withServers := func(d *Database, n *NATS) { d.DatabaseURL, n.NATSURL = "postgres://db/belfry", "nats://nats:4222" }
	standalone, scheduler, dispatcher := DefaultStandalone(), DefaultScheduler(), DefaultDispatcher()
	console, executor, migrate, restored := DefaultConsole(), DefaultExecutor(), DefaultMigrate(), DefaultRestored()
	withServers(&scheduler.Database, &scheduler.NATS)
	withServers(&dispatcher.Database, &dispatcher.NATS)
	withServers(&console.Database, &console.NATS)
	migrate.DatabaseURL = "host=db dbname=belfry"
	restored.DatabaseURL = "host=db dbname=belfry"
	executor.Group = "default"
	for _, c := range []interface{ Validate() error }{standalone, scheduler, dispatcher, console, executor, migrate, restored} {
		if err := c.Validate(); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
}

func TestValidateNamesAllFaults(t *testing.T) {
	executor := DefaultExecutor()
	executor.Group, executor.NATSURL, executor.Capacity, executor.DrainTimeout, executor.SettleTimeout = "Big", "://", 0, -1, -1
	executor.HTTPAllow = []string{"10.0.0.0/8", "10.x"}
	executor.AllowScript, executor.Metrics.Metrics, executor.Level, executor.Format = []string{"sh", "perl"}, "x", "loud", "xml"
	standalone := DefaultStandalone()
	standalone.DataDir, standalone.HTTP, standalone.NATSListen = "", "8080", "127.0.0.1:70000"
	standalone.TimeZone, standalone.MisfireTolerance, standalone.MisfireFireAllMax = "Local", 0, 0
	standalone.LostAfter, standalone.LogRetention, standalone.RunRetention, standalone.EventRetention = 1, 1, 1, 1
	standalone.NATSReplicas, standalone.NATSAccount, standalone.NATSURL, standalone.DatabasePool = 0, "", "http://x", 7
	standalone.ExecutorURL = "example.com:4222"
	standalone.TLSCert, standalone.NATSTLSKey, standalone.NATSCert = "cert.pem", "key.pem", "cert.pem"
	standalone.TrustedProxies = []string{"10.0.0.0/8", "10.1.2.3", "2001:db8::/32", "proxy.internal"}
	single := DefaultConsole()
	single.DatabaseURL, single.NATSURL = "postgres://belfry@db1:5432,db2:5433/belfry?target_session_attrs=read-write", "nats://nats:4222"
	single.OIDCIssuer, single.OIDCGroups, single.OIDCSession, single.OIDCName = "http://id.example.org", []string{"team", "team=No Group"}, 1, ""
	mapped := DefaultStandalone()
	mapped.OIDCIssuer, mapped.OIDCClientID, mapped.OIDCRedirectURL = "http://127.0.0.1:5556/dex", "belfry", "https://belfry.example.org/callback"
	mapped.OIDCRoles, mapped.OIDCDefaultRole = []string{"cn=ops,ou=x=admin", "all", "all=king"}, "admin"
	stray := DefaultStandalone()
	stray.OIDCClientID = "belfry"
	alone := DefaultStandalone()
	alone.AllowScript = []string{"perl"} // and no demo
	for _, c := range []struct {
		settings interface{ Validate() error }
		flags    string
	}{
		{executor, "--group --nats-url --capacity --allow-script --http-allow --drain-timeout --settle-timeout --metrics --log-level --log-format"},
		{standalone, "--data-dir --http --tls-key --executor-url --trusted-proxy --nats --nats-tls-cert --database-pool --nats-url --nats-key --nats-replicas --nats-account --time-zone --misfire-tolerance --misfire-fire-all-max --lost-after --log-retention --run-retention --event-retention"},
		{alone, "--allow-script --allow-script"},
		{single, "--oidc-issuer --oidc-client-id --oidc-redirect-url --oidc-name --oidc-group --oidc-group --oidc-role --oidc-session"},
		{mapped, "--oidc-redirect-url --oidc-role --oidc-role --oidc-default-role"},
		{stray, "--oidc-issuer"},
		{DefaultScheduler(), "--database-url --nats-url"},
		{DefaultDispatcher(), "--database-url --nats-url"},
		{DefaultConsole(), "--database-url --nats-url"},
		{DefaultMigrate(), "--database-url"},
		{DefaultRestored(), "--database-url"},
		{DefaultExecutor(), "--group"},
	} {
		var e *domain.Error
		if !errors.As(c.settings.Validate(), &e) || e.Code != domain.Invalid {
			t.Errorf("%T: not an Invalid error", c.settings)
			continue
		}
		var flags []string
		for _, f := range e.Fields {
			flags = append(flags, f.Location)
		}
		if got := strings.Join(flags, " "); got != c.flags {
			t.Errorf("%T: got %s\nwant %s", c.settings, got, c.flags)
		}
	}
}

// A new secret setting must have the type Secret.
func TestSecretsHaveTheirType(t *testing.T) {
	found := 0
	var look func(reflect.Type)
	look = func(s reflect.Type) {
		for f := range s.Fields() {
			if f.Anonymous {
				look(f.Type)
				continue
			}
			flag := f.Tag.Get("name")
			for _, word := range []string{"password", "secret", "token", "seed"} {
				if !strings.Contains(flag, word) || strings.Contains(f.Tag.Get("placeholder"), "FILE") {
					continue
				}
				found++
				if f.Type != reflect.TypeFor[Secret]() {
					t.Errorf("--%s is a %v", flag, f.Type)
				}
			}
		}
	}
	for _, s := range []reflect.Type{reflect.TypeFor[Standalone](), reflect.TypeFor[Console](), reflect.TypeFor[Dispatcher](), reflect.TypeFor[Executor]()} {
		look(s)
	}
	if found < 6 {
		t.Errorf("only %d secrets were found", found)
	}
}

func TestMapping(t *testing.T) {
	for text, want := range map[string][2]string{"a=b": {"a", "b"}, "cn=ops,ou=x=admin": {"cn=ops,ou=x", "admin"}, "a": {"", ""}, "=b": {"", "b"}} {
		if value, name := Mapping(text); value != want[0] || name != want[1] {
			t.Errorf("%s is %q, %q", text, value, name)
		}
	}
	if got := (OIDC{}).Callback("https://belfry.example.org/"); got != "https://belfry.example.org/api/v1/auth/oidc/callback" {
		t.Errorf("the callback is %s", got)
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	const secret = "hunter2"
	settings := DefaultStandalone()
	settings.AdminPassword, settings.SecretKey, settings.OIDCClientSecret = secret, secret, secret
	settings.DatabaseURL = "postgres://belfry:" + secret + "@db/belfry?sslpassword=" + secret
	settings.NATSURL = "nats://" + secret + "@a:1,nats://u:" + secret + "@b:2"
	executor := DefaultExecutor()
	executor.Token = secret
	keywords := URL("host=db password=" + secret)
	for _, v := range []any{settings, &settings, executor, &executor, settings.AdminPassword, keywords, map[string]any{"a": executor.Token}} {
		var logged bytes.Buffer
		slog.New(slog.NewTextHandler(&logged, nil)).Info("settings", "v", v)
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("settings", "v", v)
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for how, text := range map[string]string{
			"%v": fmt.Sprintf("%v", v), "%+v": fmt.Sprintf("%+v", v), "%#v": fmt.Sprintf("%#v", v), "%s": fmt.Sprintf("%s", v),
			"slog": logged.String(), "json": string(encoded), "error": fmt.Sprint(settings.Validate()),
		} {
			if strings.Contains(text, secret) {
				t.Errorf("%T: %s prints the secret: %s", v, how, text)
			}
		}
	}
	if settings.AdminPassword.Reveal() != secret || !strings.Contains(settings.DatabaseURL.Reveal(), secret) {
		t.Error("Reveal hides the secret too")
	}
	if got := settings.DatabaseURL.String(); got != "postgres://db/belfry" {
		t.Errorf("the URL prints as %s", got)
	}
}

func TestURLPrintsNoPartOfAPassword(t *testing.T) {
	for in, want := range map[URL]string{
		"":                         "",
		"nats://a:4222,nats://b":   "nats://a:4222,nats://b",
		"nats://token@a:4222":      "nats://a:4222",
		"postgres://u:12,3@h/db":   redacted,
		"postgres://u:12/3@h/db":   redacted,
		"postgres://u:12?3@h/db":   redacted,
		"postgres://u:12#3@h/db":   redacted,
		"host=h password=12":       redacted,
		"postgres:///db?host=/run": redacted,
		"nats://u:12@a,nats://b":   redacted,
	} {
		if got := in.String(); got != want {
			t.Errorf("%s prints as %s, want %s", in.Reveal(), got, want)
		}
	}
}

// TestEveryFieldIsAFlag checks that each field has a flag, an environment variable and a help text in the common form.
func TestEveryFieldIsAFlag(t *testing.T) {
	for _, v := range []any{Standalone{}, Scheduler{}, Dispatcher{}, Console{}, Executor{}, Migrate{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if f.Anonymous {
				continue
			}
			name, env, help := f.Tag.Get("name"), f.Tag.Get("env"), f.Tag.Get("help")
			want := "BELFRY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
			if name == "" || help == "" || env != want && f.Name != "Labels" {
				t.Errorf("%T.%s: name %q, env %q, help %q", v, f.Name, name, env, help)
			}
		}
	}
}
