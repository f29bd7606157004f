package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/belfryhq/belfry/internal/config"
)

// Every setting of a confidential type, of every command, can be read from a file.
func TestSecretsComeFromFiles(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	const secret = "postgres://hunter2@db/belfry"
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, role := range []any{config.Standalone{}, config.Scheduler{}, config.Dispatcher{}, config.Console{}, config.Executor{}, config.Gateway{}, config.Migrate{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(role)) {
			if !config.Confidential(f.Type) {
				continue
			}
			found++
			env := f.Tag.Get("env")
			t.Run(reflect.TypeOf(role).Name()+"/"+env, func(t *testing.T) {
				t.Setenv(env+config.FileSuffix, path)
				target := reflect.New(reflect.TypeOf(role))
				parser, err := kong.New(target.Interface(), kong.Resolvers(kong.ResolverFunc(secretFiles)))
				if err != nil {
					t.Fatal(err)
				}
				_, err = parser.Parse(nil) // other settings are missing, or the value is not valid for this one
				if got := target.Elem().FieldByIndex(f.Index).String(); got != secret {
					t.Errorf("the setting is %q (%v)", got, err)
				}
			})
		}
	}
	if found < 15 {
		t.Errorf("only %d settings were found", found)
	}
}

func TestSecretFilesOfCommands(t *testing.T) {
	isolate(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BELFRY_TOKEN_FILE", token)
	var roles fakeRoles
	belfryWith(t, &roles, "", "executor", "-g", "g").want(t, ExitDone)
	if got := roles.settings.(config.Executor).Token.Reveal(); got != "hunter2" {
		t.Errorf("the executor's token is %q", got)
	}
	belfryWith(t, &roles, "", "executor", "-g", "g", "--token", "flag").want(t, ExitDone)
	if got := roles.settings.(config.Executor).Token.Reveal(); got != "flag" {
		t.Errorf("with --token, the token is %q", got)
	}

	asked := ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization")
		w.Write([]byte(`{"items":[],"next_cursor":""}`))
	}))
	t.Cleanup(api.Close)
	belfry(t, "", "run", "list", "--server", api.URL).want(t, ExitDone)
	if asked != "Bearer hunter2" {
		t.Errorf("the API token is %q", asked)
	}

	t.Setenv("BELFRY_TOKEN", "direct")
	for _, args := range [][]string{{"executor", "-g", "g"}, {"run", "list"}} {
		r := belfry(t, "", args...)
		r.want(t, ExitUsage)
		if !strings.Contains(r.stderr, "BELFRY_TOKEN and BELFRY_TOKEN_FILE are both set") {
			t.Errorf("%v prints %s", args, r.stderr)
		}
	}
	os.Unsetenv("BELFRY_TOKEN")
	os.Remove(token)
	r := belfry(t, "", "executor", "-g", "g")
	r.want(t, ExitUsage)
	if !strings.Contains(r.stderr, "read BELFRY_TOKEN_FILE: open "+token) {
		t.Errorf("a missing file prints %s", r.stderr)
	}
	// A command without the setting does not read the file.
	belfry(t, "", "migrate", "status", "--database-url", "postgres://db/b").want(t, ExitDone)
}

func TestHelpNamesSecretFiles(t *testing.T) {
	isolate(t)
	r := belfry(t, "", "executor", "--help")
	r.want(t, ExitDone)
	text := string(bytes.Join(bytes.Fields([]byte(r.stdout)), []byte(" ")))
	for _, want := range []string{"($BELFRY_TOKEN, or a file in $BELFRY_TOKEN_FILE)", "($BELFRY_NATS_URL, or a file in $BELFRY_NATS_URL_FILE)", "($BELFRY_GROUP)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the help lacks %s", want)
		}
	}
}
