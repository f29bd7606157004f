package helm

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
)

// matrix has values that render every branch of the templates.
var matrix = map[string]string{
	"smallest": `{secret: {name: belfry}}`,
	"development": `
secret: {name: belfry}
postgres: {enabled: true, storage: {className: fast}}
nats: {replicas: 1}
scheduler: {replicas: 1}
dispatcher: {replicas: 1}
console: {replicas: 1}
networkPolicy: {enabled: false}
`,
	"everything": `
image: {tag: 0.2.0, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
secret: {name: belfry, oidc: true}
settings: {BELFRY_TIME_ZONE: Europe/Berlin, BELFRY_DATABASE_POOL: "32", OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318"}
scheduler:
  env: {BELFRY_DATABASE_POOL: "16"}
  autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 9, targetCPU: 60}
dispatcher: {autoscaling: {enabled: true}}
console:
  autoscaling: {enabled: true, minReplicas: 1}
  url: https://belfry.example
  tlsSecret: console-tls
  trustedProxies: [10.0.0.0/8, 192.168.0.0/16]
  env: {BELFRY_OIDC_ISSUER: "https://id.example", BELFRY_OIDC_CLIENT_ID: belfry}
  service: {type: LoadBalancer, port: 443, annotations: {a: b}}
  ingress: {enabled: true, className: nginx, host: belfry.example, tlsSecret: ingress-tls, annotations: {a: b}}
gateway:
  enabled: true
  replicas: 3
  env: {BELFRY_DATABASE_POOL: "12"}
  spool: {size: 2Gi, className: fast}
  service: {type: LoadBalancer, port: 80, annotations: {a: b}}
executors:
  - {name: default, group: default, replicas: 2, tokenSecret: {name: token-default}}
  - name: scripts
    group: billing
    replicas: 1
    tokenSecret: {name: token-billing, key: billing}
    image: registry.example/agent:1
    allowScript: [bash, python]
    allowCommand: true
    drainSeconds: 600
    env: {BELFRY_CAPACITY: "4"}
    resources: {requests: {cpu: "1", memory: 1Gi}, limits: {memory: 2Gi}}
    spool: {size: 5Gi, className: fast}
    autoscaling: {enabled: true, minReplicas: 2, maxReplicas: 4, targetCPU: 50}
nats: {replicas: 5, storage: {className: fast}}
postgres: {enabled: true}
networkPolicy:
  executorsFrom: [{namespaceSelector: {matchLabels: {team: billing}}}]
  gatewayFrom: [{ipBlock: {cidr: 10.1.0.0/16}}]
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
monitoring:
  serviceMonitor: {enabled: true, labels: {release: prometheus}, consoleToken: {secret: prometheus-token}}
  rules: {enabled: true, labels: {release: prometheus}, disabled: [BelfryRingFull]}
  dashboard: {enabled: true}
podAnnotations: {a: b}
nodeSelector: {kubernetes.io/arch: amd64}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
priorityClassName: high
`,
	"own servers": `
secret: {name: mine}
gateway: {enabled: true, replicas: 1}
executors: [{name: default, group: default, replicas: 1, tokenSecret: {name: token}}]
nats: {enabled: false, streamReplicas: 5, executorURL: "tls://nats.example:4222", caSecret: nats-ca}
postgres: {caSecret: postgres-ca}
monitoring: {serviceMonitor: {enabled: true, consoleToken: {secret: token}}, rules: {enabled: true}}
`,
}

// rendered renders values in YAML.
func rendered(t *testing.T, text string) map[string]string {
	t.Helper()
	manifests, err := render(installed, values(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

func TestTemplates(t *testing.T) {
	keys := secretKeys(t)
	for name, text := range matrix {
		t.Run(name, func(t *testing.T) {
			manifests := rendered(t, text)
			c := decode(t, manifests)
			if len(c.pods) < 5 || !strings.Contains(manifests[path.Join(chartDir, "templates/NOTES.txt")], "port-forward service/belfry-console") {
				t.Errorf("%d kinds of pods, and the notes\n%s", len(c.pods), manifests[path.Join(chartDir, "templates/NOTES.txt")])
			}
			for name, pod := range c.pods {
				c.isRestricted(name, pod)
				c.isReady(name, pod)
				c.readsSecrets(name, pod, values(t, text)["secret"].(map[string]any)["name"].(string), keys)
			}
			for _, o := range c.objects {
				c.refers(o)
			}
		})
	}
}

// TestRefused checks that mistakes in values are errors.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "secret.name is not set",
		`{secret: {name: belfry}, dispatchers: {replicas: 3}}`:                                                                    "dispatchers",
		`{secret: {name: belfry}, settings: {BELFRY_DATABASE_URL: "postgres://…"}}`:                                               "BELFRY_DATABASE_URL",
		`{secret: {name: belfry}, settings: {BELFRY_OIDC_CLIENT_SECRET_FILE: /x}}`:                                                "BELFRY_OIDC_CLIENT_SECRET_FILE",
		`{secret: {name: belfry}, console: {env: {BELFRY_ADMIN_PASSWORD: admin}}}`:                                                "BELFRY_ADMIN_PASSWORD",
		`{secret: {name: belfry}, nats: {replicas: 2}}`:                                                                           "nats/replicas",
		`{secret: {name: belfry}, nats: {enabled: false}, executors: [{name: a, group: a, replicas: 1, tokenSecret: {name: a}}]}`: "nats.executorURL is not set",
		`{secret: {name: belfry}, executors: [{name: a, group: a, replicas: 1}]}`:                                                 "tokenSecret",
		`{secret: {name: belfry}, monitoring: {serviceMonitor: {enabled: true}}}`:                                                 "consoleToken.secret is not set",
		`{secret: {name: belfry}, console: {ingress: {enabled: true}}}`:                                                           "console.ingress.host is not set",
	} {
		if _, err := render(installed, values(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error about %s", text, err, want)
		}
	}
}

// TestSettings checks that each command of a container knows the variables of its environment, from docs/settings.md.
func TestSettings(t *testing.T) {
	page, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string][]string) // commands by variable
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 5 {
			for _, m := range regexp.MustCompile("`(BELFRY_[A-Z0-9_]+)`").FindAllStringSubmatch(cells[0], -1) {
				known[m[1]] = append(known[m[1]], strings.Split(cells[3], ", ")...)
			}
		}
	}
	for name, pod := range decode(t, rendered(t, matrix["everything"])).pods {
		for _, container := range pod.Spec.Containers {
			if len(container.Args) == 0 || len(container.Command) > 0 || container.Args[0] == "postgres" {
				continue
			}
			for _, e := range container.Env {
				if strings.HasPrefix(e.Name, "BELFRY_") && !slices.Contains(known[e.Name], container.Args[0]) {
					t.Errorf("%s: belfry %s does not read %s", name, container.Args[0], e.Name)
				}
			}
		}
	}
}

// TestLikeCompose compares the environment of each process with that of compose.yaml, whose services a test runs.
func TestLikeCompose(t *testing.T) {
	text, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compose := values(t, string(text))
	services := compose["services"].(map[string]any)
	c := decode(t, rendered(t, `
secret: {name: belfry}
gateway: {enabled: true}
executors: [{name: default, group: default, replicas: 2, tokenSecret: {name: token}}]
`))
	// Variables that only one of the two needs, with the reason.
	only := map[string]string{
		"BELFRY_EXECUTOR_URL":  "the servers have other names for executors in other namespaces",
		"BELFRY_GROUP":         "an argument in compose.yaml",
		"BELFRY_TOKEN":         "in an env_file of compose.yaml",
		"BELFRY_SPOOL_DIR":     "the image's default in compose.yaml",
		"BELFRY_DRAIN_TIMEOUT": "the default in compose.yaml",
		"BELFRY_ALLOW_SCRIPT":  "the chart uses the image with script languages, and allows none by default",
		"NATS_PASSWORD":        "part of another variable", "NATS_SYS_PASSWORD": "part of another variable", "NATS_CLUSTER_PASSWORD": "part of another variable",
	}
	for service, of := range map[string]string{
		"scheduler": "Deployment belfry-scheduler", "dispatcher": "Deployment belfry-dispatcher", "console": "Deployment belfry-console",
		"executor-1": "StatefulSet belfry-executor-default", "gateway-1": "StatefulSet belfry-gateway", "nats-1": "StatefulSet belfry-nats",
	} {
		want := slices.Sorted(maps.Keys(services[service].(map[string]any)["environment"].(map[string]any)))
		var got []string
		container := c.pods[of].Spec.Containers[0]
		for _, e := range container.Env {
			if name := strings.TrimSuffix(e.Name, "_FILE"); only[name] == "" {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the variables\n%q, compose.yaml\n%q", of, got, want)
		}
		if image := services[service].(map[string]any)["image"]; service == "nats-1" && container.Image != "docker.io/library/"+image.(string) {
			t.Errorf("the chart runs %s, compose.yaml %s", container.Image, image)
		}
	}
}

// TestVersion checks that the chart's version is that of the release in env.example.
func TestVersion(t *testing.T) {
	example, err := os.ReadFile("../env.example")
	if err != nil {
		t.Fatal(err)
	}
	chart, err := decoded(path.Join(chartDir, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"version", "appVersion"} {
		if !strings.Contains(string(example), "\nVERSION="+chart[key].(string)+"\n") {
			t.Errorf("%s in Chart.yaml is %s, unlike VERSION in env.example", key, chart[key])
		}
	}
}

// TestMigrationJob checks that a new image makes a new Job, because a Job cannot be changed, and that nothing else does.
func TestMigrationJob(t *testing.T) {
	job := func(text string) string {
		for _, o := range decode(t, rendered(t, text)).objects {
			if _, ok := o.(*batch.Job); ok {
				return o.GetName()
			}
		}
		t.Fatal("there is no Job")
		return ""
	}
	first := job(`{secret: {name: belfry}}`)
	if same := job(`{secret: {name: belfry}, console: {replicas: 5}, settings: {BELFRY_TIME_ZONE: Europe/Berlin}}`); same != first {
		t.Errorf("a setting of the console makes another Job: %s, %s", first, same)
	}
	if other := job(`{secret: {name: belfry}, image: {tag: 0.2.0}}`); other == first {
		t.Errorf("two images have one Job, %s", first)
	}
}

// TestGateway checks that the gateway is off by default, and that executors reach it with their own addresses, which it checks.
func TestGateway(t *testing.T) {
	for _, o := range decode(t, rendered(t, matrix["smallest"])).objects {
		if strings.Contains(o.GetName(), "gateway") {
			t.Errorf("by default, there is %T %s", o, o.GetName())
		}
	}
	for kind, want := range map[string]core.ServiceExternalTrafficPolicy{"ClusterIP": "", "NodePort": "Local", "LoadBalancer": "Local"} {
		c := decode(t, rendered(t, `{secret: {name: belfry}, gateway: {enabled: true, service: {type: `+kind+`}}}`))
		service, ok := c.named("Service", "belfry-gateway").(*core.Service)
		if !ok || string(service.Spec.Type) != kind || service.Spec.ExternalTrafficPolicy != want {
			t.Errorf("%s: the Service of the gateway is %+v", kind, service)
		}
	}
}

// TestAlerts checks that the PrometheusRule has the alerts of belfry.rules.yml, except the disabled ones.
func TestAlerts(t *testing.T) {
	all, err := decoded("../prometheus/belfry.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	total := len(all["groups"].([]any)[0].(map[string]any)["rules"].([]any))
	alerts := func(text string) []string {
		var out []string
		for _, o := range decode(t, rendered(t, text)).objects {
			if r, ok := o.(*monitoring.PrometheusRule); ok {
				for _, rule := range r.Spec.Groups[0].Rules {
					out = append(out, rule.Alert)
				}
			}
		}
		return out
	}
	if got := alerts(matrix["everything"]); len(got) != total-1 || slices.Contains(got, "BelfryRingFull") || !slices.Contains(got, "BelfryNoExecutor") {
		t.Errorf("%d of %d alerts: %q", len(got), total, got)
	}
	if got := alerts(`{secret: {name: belfry}, monitoring: {rules: {enabled: true}}}`); len(got) != total-1 || slices.Contains(got, "BelfryNoExecutor") {
		t.Errorf("%d of %d alerts without executors: %q", len(got), total, got)
	}
}
