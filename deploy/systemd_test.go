package deploy

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const installed = "/usr/bin/belfry"

// unitFiles returns the content of the units by name.
func unitFiles(t testing.TB) map[string]string {
	t.Helper()
	names, err := filepath.Glob("systemd/*.service")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(name)] = string(text)
	}
	return found
}

// unitSettings returns the values of each key of a unit.
func unitSettings(text string) map[string][]string {
	found := make(map[string][]string)
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			found[key] = append(found[key], value)
		}
	}
	return found
}

func TestUnits(t *testing.T) {
	roles := make(map[string]bool)
	for name, content := range unitFiles(t) {
		t.Run(name, func(t *testing.T) {
			unit := unitSettings(content)
			only := func(key string) string {
				t.Helper()
				if len(unit[key]) != 1 {
					t.Fatalf("%s is set %d times", key, len(unit[key]))
				}
				return unit[key][0]
			}
			template := strings.HasSuffix(name, "@.service")
			args := strings.Fields(only("ExecStart"))
			if args[0] != installed {
				t.Errorf("starts %s", args[0])
			}
			env := make(map[string]string)
			for _, e := range unit["Environment"] {
				key, value, _ := strings.Cut(strings.ReplaceAll(e, "%i", "1"), "=")
				env[key] = value
			}
			// The environment file overrides the unit. Its example has the required variables, and the optional ones as comments.
			if n := len(unit["EnvironmentFile"]); n == 0 || n > 1 && !template {
				t.Fatalf("%d environment files", n)
			}
			file := strings.TrimPrefix(strings.TrimPrefix(unit["EnvironmentFile"][0], "-"), "/etc/belfry/")
			text, err := os.ReadFile(filepath.Join("systemd", file+".example"))
			if err != nil {
				t.Fatal(err)
			}
			given := map[string]string{
				"BELFRY_DATABASE_URL": "postgres://belfry:secret@db/belfry", "BELFRY_NATS_URL": "nats://belfry:secret@nats:4222",
				"BELFRY_NATS_SYSTEM_URL": "nats://sys:secret@nats:4222", "BELFRY_ADMIN_PASSWORD": "a-password-for-tests", "BELFRY_GROUP": "tools", "BELFRY_TOKEN": "token",
			}
			for key := range assignments(t, string(text)) {
				if given[key] == "" {
					t.Errorf("%s.example requires %s, which this test does not set", file, key)
				}
				env[key] = given[key]
			}
			for key, value := range assignments(t, strings.ReplaceAll(string(text), "\n#BELFRY_", "\nBELFRY_")) {
				if value != "" {
					env[key] = value
				}
			}
			for i, a := range args {
				args[i] = strings.ReplaceAll(a, "${CREDENTIALS_DIRECTORY}", "/run/credentials/"+name)
			}
			role := command(t, args[1:], env)
			roles[role.role] = true
			want := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "belfry-"), ".service"), "@")
			user := "DynamicUser=yes"
			if want == "belfry" {
				want, user = "standalone", "User=belfry" // its data outlives the package, so the user does, too
			}
			if role.role != want {
				t.Errorf("starts %s", role.role)
			}
			if !strings.Contains(content, "\n"+user+"\n") {
				t.Errorf("the unit lacks %s", user)
			}
			own := make(map[string]string)
			for _, e := range unit["Environment"] {
				key, value, _ := strings.Cut(e, "=")
				own[key] = value
			}
			if spool, ok := own["BELFRY_SPOOL_DIR"]; ok && spool != "%S/"+only("StateDirectory") {
				t.Errorf("the spool is %s, not the state directory", spool)
			}
			flags := slices.DeleteFunc(slices.Clone(args[1:]), func(a string) bool { return strings.Contains(a, "/") })
			knowsSettings(t, slices.DeleteFunc(flags, func(a string) bool { return a[0] == '-' }), own)

			for key, want := range map[string]string{
				"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes",
				"CapabilityBoundingSet": "", "RestrictNamespaces": "yes", "UMask": "0077",
			} {
				if got := only(key); got != want {
					t.Errorf("%s=%s, want %s", key, got, want)
				}
			}
			if role.role != "migrate" && (only("Restart") != "always" || only("KillMode") != "mixed") {
				t.Errorf("Restart=%s KillMode=%s", only("Restart"), only("KillMode"))
			}
		})
	}
	for _, role := range []string{"standalone", "scheduler", "dispatcher", "console", "executor", "gateway", "migrate"} {
		if !roles[role] {
			t.Errorf("no unit starts %s", role)
		}
	}
}

// TestTemplates checks that a template unit differs from the unit of its role only where two processes on one machine would collide.
func TestTemplates(t *testing.T) {
	units := unitFiles(t)
	collide := map[string]bool{"Description": true, "Environment": true, "EnvironmentFile": true, "StateDirectory": true}
	used := make(map[string]string) // by address and directory
	for _, role := range []string{"scheduler", "dispatcher", "console", "executor", "gateway"} {
		single, template := unitSettings(units["belfry-"+role+".service"]), unitSettings(units["belfry-"+role+"@.service"])
		if len(template) == 0 {
			t.Fatalf("%s has no template unit", role)
		}
		for key := range single {
			if !collide[key] && !slices.Equal(single[key], template[key]) {
				t.Errorf("%s: the template has %s=%q, the unit %q", role, key, template[key], single[key])
			}
		}
		for key := range template {
			if single[key] == nil {
				t.Errorf("%s: only the template has %s", role, key)
			}
		}
		own := template["StateDirectory"]
		for _, e := range template["Environment"] {
			own = append(own, e[strings.Index(e, "=")+1:])
		}
		for _, value := range own {
			if strings.HasPrefix(value, "%S/") {
				continue // the same directory as StateDirectory, see TestUnits
			}
			for i := 1; i <= 9; i++ {
				one := strings.ReplaceAll(value, "%i", strconv.Itoa(i))
				if other := used[one]; other != "" {
					t.Errorf("%s %d and %s both use %s", role, i, other, one)
				}
				used[one] = role + " " + strconv.Itoa(i)
				if _, port, err := net.SplitHostPort(one); err == nil {
					if n, err := strconv.ParseUint(port, 10, 16); err != nil || n >= 32768 { // Linux gives later ports to outgoing connections
						t.Errorf("%s %d uses port %s", role, i, port)
					}
				}
			}
		}
	}
}

// TestPageNamesFiles checks that the files in docs/deploy.md exist, and that the page has all units and alerts.
func TestPageNamesFiles(t *testing.T) {
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range regexp.MustCompile(`\bdeploy/[a-zA-Z]+/[a-zA-Z.@-]+[a-z]`).FindAllString(string(page), -1) {
		if _, err := os.Stat(filepath.Join("..", path)); err != nil {
			t.Errorf("the page names a file that does not exist: %v", err)
		}
	}
	for unit := range unitFiles(t) {
		if !strings.Contains(string(page), strings.TrimSuffix(unit, ".service")) {
			t.Errorf("the page does not describe %s", unit)
		}
	}
	for _, rule := range rules(t) {
		if !strings.Contains(string(page), "`"+rule.Alert+"`") {
			t.Errorf("the page does not describe the alert %s", rule.Alert)
		}
	}
}

// TestUnitsVerify checks the units with systemd's own verifier. The test binary replaces belfry, because the program must exist.
func TestUnitsVerify(t *testing.T) {
	systemd, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT COVERED: on this system there is no systemd-analyze to verify the units")
	}
	verify := func(name, text string) string {
		t.Helper()
		if strings.HasSuffix(name, "@.service") {
			name = "belfry-test@1.service"
		} else {
			name = "belfry-test.service"
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(systemd, "verify", "--man=no", path).CombinedOutput()
		// The exit code of warnings is 0. The output can also have warnings about other units of the machine.
		said := strings.TrimSpace(string(out))
		if !strings.Contains(said, "belfry-test") && err == nil {
			return ""
		}
		return said
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var broken string
	for name, text := range unitFiles(t) {
		text = strings.ReplaceAll(text, installed, self)
		if said := verify(name, text); said != "" {
			t.Errorf("%s: %s", name, said)
		}
		broken = text
	}
	for _, change := range [][2]string{{"UMask=0077", "UMask=rwx"}, {"NoNewPrivileges=yes", "NoSuchSetting=yes"}, {self, "/nowhere/belfry"}} {
		if verify("broken.service", strings.ReplaceAll(broken, change[0], change[1])) == "" {
			t.Errorf("systemd accepts %s", change[1])
		}
	}
}
