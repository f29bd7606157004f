package helm

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"os"
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

// cluster has the decoded objects of a release.
type cluster struct {
	*testing.T
	objects []meta.Object
	pods    map[string]core.PodTemplateSpec // by kind and name
}

// manifest is a document of a template's output.
type manifest struct {
	file string
	kind meta.TypeMeta
	text []byte // YAML
}

// manifests returns the documents of the chart's objects, without the notes.
func manifests(t *testing.T, byFile map[string]string) (out []manifest) {
	t.Helper()
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		if strings.HasSuffix(file, ".txt") {
			continue
		}
		documents := k8syaml.NewYAMLReader(bufio.NewReader(strings.NewReader(byFile[file])))
		for {
			text, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			m := manifest{file: file, text: text}
			if err := errors.Join(err, yaml.Unmarshal(text, &m.kind)); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, text)
			}
			if m.kind.Kind != "" || len(strings.TrimSpace(regexp.MustCompile(`(?m)^(#.*|---)$`).ReplaceAllString(string(text), ""))) > 0 {
				out = append(out, m)
			}
		}
	}
	return out
}

// decode decodes the manifests strictly: an unknown field, a wrong type and a duplicate key are errors.
func decode(t *testing.T, byFile map[string]string) *cluster {
	t.Helper()
	c := &cluster{T: t, pods: make(map[string]core.PodTemplateSpec)}
	names := make(map[string]bool)
	for _, m := range manifests(t, byFile) {
		blank, ok := kinds[m.kind]
		if !ok {
			t.Fatalf("%s has an object of another kind, %v:\n%s", m.file, m.kind, m.text)
		}
		o := blank()
		if err := strictly(m.text, o); err != nil {
			t.Fatalf("%s: %s: %v\n%s", m.file, m.kind.Kind, err, m.text)
		}
		name := m.kind.Kind + " " + o.GetName()
		if names[name] || len(o.GetName()) > 52 {
			t.Errorf("%s: %s exists twice, or has a name that is too long for its pods", m.file, name)
		}
		names[name] = true
		c.objects = append(c.objects, o)
		c.add(name, o)
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
