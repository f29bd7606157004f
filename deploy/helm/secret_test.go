package helm

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// secretKeys runs make-secret.sh and returns the keys of the Secret, and the one that only users with an identity provider add.
func secretKeys(t *testing.T) []string {
	t.Helper()
	secret := makeSecret(t)
	return append(slices.Collect(maps.Keys(secret.StringData)), "oidc-client-secret")
}

func makeSecret(t *testing.T, args ...string) core.Secret {
	t.Helper()
	cmd := exec.Command("./make-secret.sh", args...)
	// The script runs a program of the root's modules.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GOWORK=") || strings.HasPrefix(e, "GOFLAGS=") })
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var secret core.Secret
	if err := strictly(out, &secret); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return secret
}

// TestMakeSecret checks that the addresses in the Secret are those of the chart's servers, with the servers' passwords.
func TestMakeSecret(t *testing.T) {
	first := makeSecret(t, "--release", "prod", "--namespace", "jobs", "--name", "credentials")
	manifests, err := render(release{Name: "prod", Namespace: "jobs", Service: "Helm"}, values(t, `{secret: {name: credentials}, postgres: {enabled: true}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := decode(t, manifests)
	s := first.StringData
	if first.Name != "credentials" || first.Namespace != "jobs" || !strings.HasPrefix(s["nats-issuer"], "A") || !strings.HasPrefix(s["nats-issuer-seed"], "SA") {
		t.Errorf("the Secret %s/%s has the key pair %q", first.Namespace, first.Name, s["nats-issuer"])
	}
	for key, password := range map[string]string{"database-url": s["postgres-password"], "nats-url": s["nats-password"], "nats-system-url": s["nats-sys-password"]} {
		if password == "" || !strings.Contains(s[key], ":"+password+"@") {
			t.Errorf("%s has another password than the server", key)
		}
		for _, m := range regexp.MustCompile(`@([a-z0-9-]+?)(-\d)?(?:\.([a-z0-9-]+))?:(\d+)`).FindAllStringSubmatch(s[key], -1) {
			service := m[1]
			if m[3] != "" {
				service = m[3]
			}
			set, ok := c.named("StatefulSet", m[1]).(*apps.StatefulSet)
			if !ok || c.named("Service", service) == nil || set.Spec.ServiceName != service || m[2] >= "-3" {
				t.Errorf("%s: the chart has no server %s", key, m[0])
			}
		}
	}
	second := makeSecret(t, "--database-url", "postgres://db.example/belfry", "--nats-host", "nats.example:4222")
	if second.StringData["database-url"] != "postgres://db.example/belfry" || !strings.HasSuffix(second.StringData["nats-url"], "@nats.example:4222") {
		t.Errorf("the script ignores its arguments: %q", second.StringData["database-url"])
	}
	for key, value := range second.StringData {
		if value == "" || value == s[key] {
			t.Errorf("%s is the same in two Secrets", key)
		}
	}
}
