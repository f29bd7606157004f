package deploy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	compose "github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"
	"github.com/nats-io/nkeys"
)

// The operator creates executorEnv and consoleToken when a console is up.
const (
	executorEnv  = "secrets/executor.env"
	consoleToken = "secrets/prometheus/console.token"
)

// filled returns a value for every variable of env.example.
func filled(t testing.TB) map[string]string {
	t.Helper()
	env := example(t, "env.example")
	for name := range env {
		env[name] = "the-value-that-tests-have-for-" + strings.ToLower(name)
	}
	return env
}

// example reads the assignments of an environment file.
func example(t testing.TB, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return assignments(t, string(text))
}

func assignments(t testing.TB, text string) map[string]string {
	t.Helper()
	env := make(map[string]string)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || env[name] != "" {
			t.Fatalf("%q is not an assignment, or assigns a variable for the second time", line)
		}
		env[name] = value
	}
	return env
}

// checkout returns a copy of this directory with the files that the operator adds.
func checkout(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deploy")
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(consoleToken)), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{executorEnv: "BELFRY_TOKEN=token-of-a-test\n", consoleToken: "token\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// load reads compose.yaml as docker compose does.
func load(ctx context.Context, dir string, env map[string]string, profiles ...string) (*types.Project, error) {
	var assigned []string
	for name, value := range env {
		assigned = append(assigned, name+"="+value)
	}
	options, err := compose.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")},
		compose.WithWorkingDirectory(dir), compose.WithEnv(assigned), compose.WithProfiles(profiles), compose.WithConsistency(true))
	if err != nil {
		return nil, err
	}
	return options.LoadProject(ctx)
}

// project returns compose.yaml with all profiles.
func project(t testing.TB) *types.Project {
	t.Helper()
	p, err := load(t.Context(), checkout(t), filled(t), "executors", "gateway", "cli")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// imageName is the name of Belfry's images, without their tag.
const imageName = "ghcr.io/belfryhq/belfry:"

// ours returns the services that run Belfry's image.
func ours(p *types.Project) map[string]types.ServiceConfig {
	found := make(map[string]types.ServiceConfig)
	for name, s := range p.Services {
		if strings.HasPrefix(s.Image, imageName) {
			found[name] = s
		}
	}
	return found
}

func environment(s types.ServiceConfig) map[string]string {
	env := make(map[string]string)
	for name, value := range s.Environment {
		if value != nil {
			env[name] = *value
		}
	}
	return env
}

// instances returns the number of containers of a service.
func instances(s types.ServiceConfig) int {
	if s.Deploy != nil && s.Deploy.Replicas != nil {
		return *s.Deploy.Replicas
	}
	return 1
}

func TestComposeCommands(t *testing.T) {
	counts := make(map[string]int)
	image := make(map[string]string) // the environment that the image sets
	for _, i := range stages(t)["server"] {
		if i.name == "ENV" {
			for _, e := range strings.Fields(i.rest) {
				name, value, _ := strings.Cut(e, "=")
				image[name] = value
			}
		}
	}
	for name, s := range ours(project(t)) {
		t.Run(name, func(t *testing.T) {
			if s.Entrypoint != nil {
				t.Errorf("overrides the entrypoint: %q", s.Entrypoint)
			}
			env := environment(s)
			known := []string(s.Command)
			if name == "cli" {
				known = []string{"job", "list"}
			}
			knowsSettings(t, known, env)
			for name, value := range image {
				if env[name] == "" {
					env[name] = value
				}
			}
			role := command(t, s.Command, env)
			counts[role.role] += instances(s)
			// The seed must be at the path that the process reads, and only that process may read it.
			seed, signs := env["BELFRY_NATS_ISSUER_SEED"]
			if signs != (len(s.Secrets) == 1) {
				t.Fatalf("sets a seed: %t, number of secrets: %d", signs, len(s.Secrets))
			}
			if signs {
				secret := s.Secrets[0]
				if seed != "/run/secrets/"+secret.Source || secret.Mode == nil || *secret.Mode != 0o400 || secret.UID+":"+secret.GID != userOfImage(t) {
					t.Errorf("the process reads the seed from %s, and the secret is %+v", seed, secret)
				}
			}
			if spool := env["BELFRY_SPOOL_DIR"]; (role.role == "executor" || role.role == "gateway") && !slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool {
				return v.Type == types.VolumeTypeVolume && strings.HasPrefix(spool, v.Target+"/")
			}) {
				t.Errorf("its spool %s is not on a volume", spool)
			}
		})
	}
	want := map[string]int{"scheduler": 2, "dispatcher": 2, "console": 2, "executor": 2, "gateway": 2, "migrate": 1, "": 1}
	if !maps.Equal(counts, want) {
		t.Errorf("got %v of each role, want %v", counts, want)
	}
}

func userOfImage(t testing.TB) string {
	t.Helper()
	user := ""
	for _, i := range stages(t)["server"] {
		if i.name == "USER" {
			user = i.rest
		}
	}
	return user
}

// TestComposeRefuses checks that compose fails without any of the secrets, and that the error names the secret and the script for it.
func TestComposeRefuses(t *testing.T) {
	dir := checkout(t)
	secrets := 0
	for name := range filled(t) {
		if name == "VERSION" {
			continue
		}
		secrets++
		for how, change := range map[string]func(map[string]string){
			"unset": func(env map[string]string) { delete(env, name) },
			"empty": func(env map[string]string) { env[name] = "" },
		} {
			env := filled(t)
			change(env)
			_, err := load(t.Context(), dir, env)
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "make-env.sh") {
				t.Errorf("%s %s: got %v", name, how, err)
			}
		}
	}
	if secrets < 9 {
		t.Errorf("only %d secrets were tested", secrets)
	}
	if _, err := load(t.Context(), dir, map[string]string{}); err == nil {
		t.Error("compose starts without any secret")
	}

	// Executors need their group's token, which exists only after a console has started. Without it, the other services must start.
	if err := os.Remove(filepath.Join(dir, executorEnv)); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t.Context(), dir, filled(t)); err != nil {
		t.Errorf("without executors: %v", err)
	}
	if _, err := load(t.Context(), dir, filled(t), "executors"); err == nil || !strings.Contains(err.Error(), "executor.env") {
		t.Errorf("executors without a token: got %v", err)
	}
}

// TestExamplesHaveNoDefaults checks that no file contains a default for a secret, because everyone can read the repository.
func TestExamplesHaveNoDefaults(t *testing.T) {
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known, used := example(t, "env.example"), make(map[string]bool)
	for _, m := range regexp.MustCompile(`\$\{?([A-Z_]+)([^A-Z_])`).FindAllStringSubmatch(string(text), -1) {
		used[m[1]] = true
		if _, ok := known[m[1]]; !ok {
			t.Errorf("compose.yaml uses %s, which is not in env.example", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\$\{([A-Z_]+)(:?[-+])`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != "VERSION" {
			t.Errorf("compose.yaml has a default for %s", m[1])
		}
	}
	for name, value := range known {
		if value != "" && name != "VERSION" {
			t.Errorf("env.example has a value for %s", name)
		}
		if !used[name] && !strings.Contains(string(text), "environment: "+name+"\n") {
			t.Errorf("env.example has %s, which compose.yaml does not use", name)
		}
	}
	for _, file := range []string{"systemd/standalone.env.example", "systemd/belfry.env.example", "systemd/executor.env.example"} {
		for name, value := range example(t, file) {
			if value != "" {
				t.Errorf("%s has a value for %s", file, name)
			}
		}
	}
}

// TestMakeEnv checks that the script prints all variables, with new values each time.
func TestMakeEnv(t *testing.T) {
	run := func() map[string]string {
		out, err := exec.Command("./make-env.sh").Output()
		if err != nil {
			t.Fatal(err)
		}
		return assignments(t, string(out))
	}
	made, again := run(), run()
	seen := make(map[string]string)
	for name := range example(t, "env.example") {
		value := made[name]
		if name == "VERSION" {
			continue
		}
		if len(value) < 22 || !regexp.MustCompile(`^[A-Za-z0-9]+$`).MatchString(value) {
			t.Errorf("%s is %q: want 22 letters and digits or more", name, value)
		}
		if value == again[name] {
			t.Errorf("%s is the same each time", name)
		}
		if other, twice := seen[value]; twice {
			t.Errorf("%s and %s are the same", name, other)
		}
		seen[value] = name
	}
	key, err := nkeys.FromSeed([]byte(made["NATS_ISSUER_SEED"]))
	if err != nil {
		t.Fatal(err)
	}
	if public, err := key.PublicKey(); err != nil || public != made["NATS_ISSUER"] {
		t.Errorf("the seed belongs to %s, want %s (%v)", public, made["NATS_ISSUER"], err)
	}
	if _, err := load(t.Context(), checkout(t), made); err != nil {
		t.Error(err)
	}
}

// mounted returns the file of this directory that a service sees at path.
func mounted(s types.ServiceConfig, path string) string {
	for _, v := range s.Volumes {
		if v.Type != types.VolumeTypeBind {
			continue
		}
		if below, ok := strings.CutPrefix(path, v.Target); ok && (below == "" || below[0] == '/') {
			return v.Source + below
		}
	}
	return ""
}

func TestComposeMounts(t *testing.T) {
	p := project(t)
	files := 0
	sees := func(service, path string) {
		t.Helper()
		if from := mounted(p.Services[service], path); from == "" {
			t.Errorf("%s: nothing is mounted at %s", service, path)
		} else if _, err := os.Stat(from); err != nil {
			t.Errorf("%s: %v", service, err)
		}
		files++
	}
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s may write to %s", name, v.Source)
			}
		}
		if s.Build != nil {
			t.Errorf("%s is built; compose pulls released images", name)
		}
		if strings.HasPrefix(s.Image, "nats:") {
			i := slices.Index(s.Command, "--config")
			sees(name, s.Command[i+1])
			sees(name, filepath.Join(filepath.Dir(s.Command[i+1]), "nats.conf"))
		}
	}
	settings := prometheusSettings(t)
	sees("prometheus", "/etc/prometheus/prometheus.yml")
	for _, file := range settings.RuleFiles {
		sees("prometheus", file)
	}
	for _, scrape := range settings.ScrapeConfigs {
		if scrape.Authorization != nil {
			sees("prometheus", scrape.Authorization.CredentialsFile)
		}
	}
	var dashboards struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name           string
			Type           string
			AllowUIUpdates bool `yaml:"allowUiUpdates"`
			Options        struct{ Path string }
		}
	}
	strictYAML(t, "grafana/provisioning/dashboards/belfry.yaml", &dashboards)
	sees("grafana", "/etc/grafana/provisioning/datasources/prometheus.yaml")
	sees("grafana", filepath.Join(dashboards.Providers[0].Options.Path, "belfry.json"))
	if files < 10 {
		t.Errorf("only %d files were checked", files)
	}
}

// TestScrapes checks that Prometheus scrapes existing services at the ports on which they listen.
func TestScrapes(t *testing.T) {
	p := project(t)
	scraped := make(map[string]bool)
	for _, scrape := range prometheusSettings(t).ScrapeConfigs {
		for _, discovery := range scrape.DNS {
			for _, name := range discovery.Names {
				scraped[name] = true
				env := environment(p.Services[name])
				address := cmp.Or(env["BELFRY_METRICS"], env["BELFRY_HTTP"])
				if want := fmt.Sprintf("0.0.0.0:%d", discovery.Port); address != want {
					t.Errorf("%s is scraped at %s and listens at %q", name, want, address)
				}
				if !strings.HasPrefix(name, strings.TrimPrefix(scrape.JobName, "belfry-")) {
					t.Errorf("%s is scraped as %s", name, scrape.JobName)
				}
			}
		}
	}
	for name := range ours(p) {
		if !scraped[name] && name != "migrate" && name != "cli" {
			t.Errorf("%s is not scraped", name)
		}
	}
}

func TestComposeIsCareful(t *testing.T) {
	p := project(t)
	for name, s := range p.Services {
		if !strings.HasPrefix(s.Image, imageName) && !pinned.MatchString(s.Image) {
			t.Errorf("%s: %s is not pinned to a release", name, s.Image)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to other machines", name, port.Published)
			}
		}
		if s.Privileged || s.NetworkMode != "" && s.NetworkMode != "bridge" {
			t.Errorf("%s: privileged, or in network %s", name, s.NetworkMode)
		}
		if name != "postgres" { // its image changes the owner of its directory, and switches to another user
			if !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
				t.Errorf("%s: drops %q, has %q", name, s.CapDrop, s.SecurityOpt)
			}
		}
	}
	for name, s := range p.Services {
		limits := types.Resource{}
		if s.Deploy != nil && s.Deploy.Resources.Limits != nil {
			limits = *s.Deploy.Resources.Limits
		}
		if limits.MemoryBytes == 0 || limits.NanoCPUs == 0 {
			t.Errorf("%s has no limit of memory or CPU", name)
		}
		if s.Logging == nil || s.Logging.Options["max-size"] == "" || s.Logging.Options["max-file"] == "" {
			t.Errorf("%s: the log of its container grows without a bound", name)
		}
	}
	for name, s := range ours(p) {
		check := s.HealthCheck
		if once := name == "migrate" || name == "cli"; check == nil || check.Disable != once || !once && !slices.Equal(check.Test, []string{"CMD", "/usr/bin/belfry", "health"}) {
			t.Errorf("%s has the health check %+v", name, check)
		}
		// Compose copies such a secret into the container, so the container cannot be read-only.
		if copied := len(s.Secrets) > 0; s.ReadOnly == copied {
			t.Errorf("%s: read_only is %t, and it has %d secrets", name, s.ReadOnly, len(s.Secrets))
		}
		if s.User != "" {
			t.Errorf("%s: runs as %s, not as the image's user", name, s.User)
		}
	}
	// VERSION in env.example is the release of this tree, whose number the modules have.
	for _, r := range goMod(t).Require {
		if want := strings.TrimPrefix(r.Mod.Version, "v"); r.Mod.Path == "github.com/belfryhq/belfry/executor" && example(t, "env.example")["VERSION"] != want {
			t.Errorf("VERSION in env.example is not %s", want)
		}
	}
	// The tests run the configuration with the NATS server of this module, so the image must have the same version.
	for _, r := range goMod(t).Require {
		if r.Mod.Path != "github.com/nats-io/nats-server/v2" {
			continue
		}
		if want := "nats:" + strings.TrimPrefix(r.Mod.Version, "v") + "-alpine"; p.Services["nats-1"].Image != want {
			t.Errorf("compose.yaml runs %s; tests run %s", p.Services["nats-1"].Image, want)
		}
	}
}

func strictYAML(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(text, into, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
