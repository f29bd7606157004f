package helm

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kinds lists the objects that the chart may contain. None of them gives rights to a pod, or belongs to the whole cluster.
var kinds = map[meta.TypeMeta]func() meta.Object{
	{APIVersion: "v1", Kind: "ConfigMap"}:                            func() meta.Object { return &core.ConfigMap{} },
	{APIVersion: "v1", Kind: "Pod"}:                                  func() meta.Object { return &core.Pod{} },
	{APIVersion: "v1", Kind: "Service"}:                              func() meta.Object { return &core.Service{} },
	{APIVersion: "v1", Kind: "ServiceAccount"}:                       func() meta.Object { return &core.ServiceAccount{} },
	{APIVersion: "apps/v1", Kind: "Deployment"}:                      func() meta.Object { return &apps.Deployment{} },
	{APIVersion: "apps/v1", Kind: "StatefulSet"}:                     func() meta.Object { return &apps.StatefulSet{} },
	{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}:  func() meta.Object { return &autoscaling.HorizontalPodAutoscaler{} },
	{APIVersion: "batch/v1", Kind: "Job"}:                            func() meta.Object { return &batch.Job{} },
	{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}:            func() meta.Object { return &networking.Ingress{} },
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:      func() meta.Object { return &networking.NetworkPolicy{} },
	{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:           func() meta.Object { return &policy.PodDisruptionBudget{} },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "ServiceMonitor"}: func() meta.Object { return &monitoring.ServiceMonitor{} },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"}: func() meta.Object { return &monitoring.PrometheusRule{} },
}

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

// cluster has the decoded objects of a release.
type cluster struct {
	*testing.T
	objects []meta.Object
	pods    map[string]core.PodTemplateSpec // by kind and name
}

// decode decodes the manifests strictly: an unknown field, a wrong type and a duplicate key are errors.
func decode(t *testing.T, manifests map[string]string) *cluster {
	t.Helper()
	c := &cluster{T: t, pods: make(map[string]core.PodTemplateSpec)}
	names := make(map[string]bool)
	for _, file := range slices.Sorted(maps.Keys(manifests)) {
		if strings.HasSuffix(file, ".txt") {
			continue
		}
		documents := k8syaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests[file])))
		for {
			text, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var kind meta.TypeMeta
			if err := yaml.Unmarshal(text, &kind); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, text)
			}
			if kind.Kind == "" && len(strings.TrimSpace(regexp.MustCompile(`(?m)^(#.*|---)$`).ReplaceAllString(string(text), ""))) == 0 {
				continue
			}
			blank, ok := kinds[kind]
			if !ok {
				t.Fatalf("%s has an object of another kind, %v:\n%s", file, kind, text)
			}
			o := blank()
			if err := strictly(text, o); err != nil {
				t.Fatalf("%s: %s: %v\n%s", file, kind.Kind, err, text)
			}
			name := kind.Kind + " " + o.GetName()
			if names[name] || len(o.GetName()) > 52 {
				t.Errorf("%s: %s exists twice, or has a name that is too long for its pods", file, name)
			}
			names[name] = true
			c.objects = append(c.objects, o)
			c.add(name, o)
		}
	}
	return c
}

// strictly decodes an object as the API server does with strict validation. Unlike encoding/json, it distinguishes capital letters.
func strictly(text []byte, o meta.Object) error {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	faults, err := json.UnmarshalStrict(asJSON, o)
	return errors.Join(append(faults, err)...)
}

// add remembers the pods of an object, and checks that its selector selects them.
func (c *cluster) add(name string, o meta.Object) {
	c.Helper()
	var selector *meta.LabelSelector
	var pod core.PodTemplateSpec
	switch o := o.(type) {
	case *apps.Deployment:
		selector, pod = o.Spec.Selector, o.Spec.Template
	case *apps.StatefulSet:
		selector, pod = o.Spec.Selector, o.Spec.Template
		for _, claim := range o.Spec.VolumeClaimTemplates {
			pod.Spec.Volumes = append(pod.Spec.Volumes, core.Volume{Name: claim.Name})
		}
	case *batch.Job:
		pod = o.Spec.Template
	case *core.Pod:
		pod = core.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	default:
		return
	}
	if selector != nil && !c.selects(selector, pod) {
		c.Errorf("%s does not select its own pods", name)
	}
	c.pods[name] = pod
}

func (c *cluster) selects(s *meta.LabelSelector, pod core.PodTemplateSpec) bool {
	selector, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		c.Fatal(err)
	}
	return selector.Matches(labels.Set(pod.Labels))
}

// selected returns the pods that a selector selects, by kind and name.
func (c *cluster) selected(s *meta.LabelSelector) map[string]core.PodTemplateSpec {
	out := maps.Clone(c.pods)
	maps.DeleteFunc(out, func(_ string, pod core.PodTemplateSpec) bool { return !c.selects(s, pod) })
	return out
}

func hasPort(pod core.PodTemplateSpec, port intstr.IntOrString) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(container core.Container) bool {
		return slices.ContainsFunc(container.Ports, func(p core.ContainerPort) bool {
			return p.Name == port.StrVal && port.Type == intstr.String || p.ContainerPort == port.IntVal && port.Type == intstr.Int
		})
	})
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

// isRestricted checks what the Pod Security Standard "restricted" requires, and that the root file system is read-only.
func (c *cluster) isRestricted(name string, pod core.PodTemplateSpec) {
	s := pod.Spec.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		c.Errorf("%s has the security context %+v", name, s)
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken || pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC {
		c.Errorf("%s has a token of the Kubernetes API, or namespaces of the host", name)
	}
	for _, container := range pod.Spec.Containers {
		s := container.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			c.Errorf("%s: the container %s has the security context %+v", name, container.Name, s)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			c.Errorf("%s: the container %s has the resources %+v", name, container.Name, container.Resources)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			c.Errorf("%s mounts a path of the host", name)
		}
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit == nil {
			c.Errorf("%s: the volume %s grows without a bound", name, v.Name)
		}
	}
}

// isReady checks the probes of pods that run until they are stopped, and that their time to stop is long enough.
func (c *cluster) isReady(name string, pod core.PodTemplateSpec) {
	if kind, _, _ := strings.Cut(name, " "); kind == "Job" || kind == "Pod" {
		return
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace == nil || *grace < 60 {
		c.Errorf("%s has %v to stop", name, grace)
	}
	for _, container := range pod.Spec.Containers {
		if container.LivenessProbe == nil || container.ReadinessProbe == nil {
			c.Errorf("%s: the container %s has no probe", name, container.Name)
			continue
		}
		for _, probe := range []*core.Probe{container.LivenessProbe, container.ReadinessProbe} {
			if (probe.HTTPGet == nil) == (probe.Exec == nil) || probe.HTTPGet != nil && !hasPort(pod, probe.HTTPGet.Port) {
				c.Errorf("%s: the container %s has the probe %+v", name, container.Name, probe)
			}
		}
		if get := container.LivenessProbe.HTTPGet; get != nil && (get.Path != "/healthz" || container.ReadinessProbe.HTTPGet.Path != "/readyz") {
			c.Errorf("%s: a probe asks another path", name)
		}
	}
}

// readsSecrets checks the environment and the volumes: Belfry's credentials come from the one Secret, from keys that make-secret.sh
// writes, and each file that a variable names is mounted.
func (c *cluster) readsSecrets(name string, pod core.PodTemplateSpec, secret string, keys []string) {
	volumes := make(map[string]core.Volume)
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = v
		if v.Secret != nil && v.Secret.SecretName == secret {
			if len(v.Secret.Items) == 0 {
				c.Errorf("%s gets all secrets", name)
			}
			for _, item := range v.Secret.Items {
				if !slices.Contains(keys, item.Key) {
					c.Errorf("%s reads %s, which make-secret.sh does not write", name, item.Key)
				}
			}
		}
	}
	for _, container := range pod.Spec.Containers {
		mounted := make(map[string]bool)
		for _, m := range container.VolumeMounts {
			v, ok := volumes[m.Name]
			if !ok {
				c.Errorf("%s mounts the volume %s, which it does not have", name, m.Name)
			}
			if v.Secret == nil {
				continue
			}
			if mode := v.Secret.DefaultMode; mode == nil || *mode != 0o440 || !m.ReadOnly {
				c.Errorf("%s: everyone in the container may read %s", name, m.Name)
			}
			for _, item := range v.Secret.Items {
				mounted[path.Join(m.MountPath, item.Path)] = true
			}
			if len(v.Secret.Items) == 0 { // a kubernetes.io/tls Secret
				mounted[path.Join(m.MountPath, "tls.crt")], mounted[path.Join(m.MountPath, "tls.key")] = true, true
			}
		}
		seen := make(map[string]bool)
		for _, e := range container.Env {
			if seen[e.Name] {
				c.Errorf("%s sets %s twice", name, e.Name)
			}
			for _, m := range regexp.MustCompile(`\$\(([A-Z_]+)\)`).FindAllStringSubmatch(e.Value, -1) {
				if !seen[m[1]] {
					c.Errorf("%s: %s refers to %s, which is not set before it", name, e.Name, m[1])
				}
			}
			seen[e.Name] = true
			if strings.HasPrefix(e.Value, "/run/") && !mounted[e.Value] {
				c.Errorf("%s: %s names %s, which is not mounted", name, e.Name, e.Value)
			}
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && (e.ValueFrom.SecretKeyRef.Name != secret || !slices.Contains(keys, e.ValueFrom.SecretKeyRef.Key)) {
				c.Errorf("%s: %s is the key %s of %s", name, e.Name, e.ValueFrom.SecretKeyRef.Key, e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
}

// refers checks the references of an object to others.
func (c *cluster) refers(o meta.Object) {
	name := reflect.TypeOf(o).Elem().Name() + " " + o.GetName()
	switch o := o.(type) {
	case *core.Service:
		pods := c.selected(&meta.LabelSelector{MatchLabels: o.Spec.Selector})
		for _, port := range o.Spec.Ports {
			if len(pods) == 0 || slices.ContainsFunc(slices.Collect(maps.Values(pods)), func(p core.PodTemplateSpec) bool { return !hasPort(p, port.TargetPort) }) {
				c.Errorf("%s: not every one of its %d kinds of pods has the port %s", name, len(pods), port.TargetPort.String())
			}
		}
	case *apps.StatefulSet:
		if c.named("Service", o.Spec.ServiceName) == nil {
			c.Errorf("%s: there is no Service %s", name, o.Spec.ServiceName)
		}
	case *policy.PodDisruptionBudget:
		if pods := c.selected(o.Spec.Selector); len(pods) != 1 {
			c.Errorf("%s is for %d kinds of pods", name, len(pods))
		}
	case *networking.NetworkPolicy:
		c.allows(name, o)
	case *autoscaling.HorizontalPodAutoscaler:
		switch target := c.named(o.Spec.ScaleTargetRef.Kind, o.Spec.ScaleTargetRef.Name).(type) {
		case *apps.Deployment:
			if target.Spec.Replicas != nil {
				c.Errorf("%s: each upgrade would reset the number of pods", name)
			}
		case *apps.StatefulSet:
			if target.Spec.Replicas != nil {
				c.Errorf("%s: each upgrade would reset the number of pods", name)
			}
		default:
			c.Errorf("%s has no target", name)
		}
	case *networking.Ingress:
		backend := o.Spec.Rules[0].HTTP.Paths[0].Backend.Service
		service, ok := c.named("Service", backend.Name).(*core.Service)
		if !ok || !slices.ContainsFunc(service.Spec.Ports, func(p core.ServicePort) bool { return p.Name == backend.Port.Name }) {
			c.Errorf("%s leads to no Service", name)
		}
	case *monitoring.ServiceMonitor:
		c.scrapes(name, o)
	}
}

// allows checks that a policy selects pods, that they have its ports, and that its peers within the release exist.
func (c *cluster) allows(name string, o *networking.NetworkPolicy) {
	pods := c.selected(&o.Spec.PodSelector)
	if len(pods) == 0 {
		c.Errorf("%s is for no pod", name)
	}
	for _, rule := range o.Spec.Ingress {
		for _, port := range rule.Ports {
			if !slices.ContainsFunc(slices.Collect(maps.Values(pods)), func(p core.PodTemplateSpec) bool { return hasPort(p, *port.Port) }) {
				c.Errorf("%s: no pod has the port %s", name, port.Port.String())
			}
		}
		for _, peer := range rule.From {
			if peer.PodSelector != nil && peer.NamespaceSelector == nil && len(c.selected(peer.PodSelector)) == 0 {
				c.Errorf("%s allows no pod", name)
			}
		}
	}
}

// scrapes checks that the port of a ServiceMonitor is that of one Service, and gives the name of the job that alert rules and dashboard use.
func (c *cluster) scrapes(name string, o *monitoring.ServiceMonitor) {
	var services []*core.Service
	endpoint := o.Spec.Endpoints[0]
	for _, other := range c.objects {
		s, ok := other.(*core.Service)
		if ok && c.selects(&o.Spec.Selector, core.PodTemplateSpec{ObjectMeta: s.ObjectMeta}) &&
			slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == endpoint.Port }) {
			services = append(services, s)
		}
	}
	if len(services) != 1 {
		c.Errorf("%s selects %d Services with the port %s", name, len(services), endpoint.Port)
	}
	prometheus, err := os.ReadFile("../prometheus/prometheus.yml")
	if err != nil {
		c.Fatal(err)
	}
	if job := endpoint.RelabelConfigs[0].Replacement; job == nil || !strings.Contains(string(prometheus), "job_name: "+*job+"\n") {
		c.Errorf("%s gives its job a name that no alert rule uses", name)
	}
}

func (c *cluster) named(kind, name string) meta.Object {
	for _, o := range c.objects {
		if reflect.TypeOf(o).Elem().Name() == kind && o.GetName() == name {
			return o
		}
	}
	return nil
}

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
