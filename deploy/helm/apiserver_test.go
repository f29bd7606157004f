package helm

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestAgainstAPIServer applies the objects of the chart to a real API server of Kubernetes: server-side, strictly, without storing them. The namespace
// has the pod security standard "restricted", and a warning of the server is an error.
func TestAgainstAPIServer(t *testing.T) {
	binary, crds := os.Getenv("BELFRY_TEST_KUBE_APISERVER"), os.Getenv("BELFRY_TEST_CRDS")
	if binary == "" || crds == "" {
		t.Skip("NOT COVERED: kube-apiserver takes half an hour to build; `.ci/long apiserver` runs it")
	}
	s := startAPIServer(t, binary)
	for _, crd := range []string{"servicemonitors", "prometheusrules"} {
		text, err := os.ReadFile(filepath.Join(crds, "monitoring.coreos.com_"+crd+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s.store(t, text)
	}
	s.store(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: jobs, labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}}}`))
	s.store(t, []byte(`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}`))

	for name, text := range matrix {
		t.Run(name, func(t *testing.T) {
			for _, m := range manifests(t, rendered(t, text)) {
				if code, answer := s.apply(t, m.text, true); code != http.StatusOK && code != http.StatusCreated {
					t.Errorf("%s: the server answers %d\n%s\nto\n%s", m.file, code, answer, m.text)
				}
			}
		})
	}
	t.Run("secret", func(t *testing.T) {
		text, err := yaml.Marshal(makeSecret(t, "--namespace", installed.Namespace))
		if err != nil {
			t.Fatal(err)
		}
		if code, answer := s.apply(t, text, true); code != http.StatusCreated {
			t.Errorf("the server answers %d\n%s", code, answer)
		}
	})
	// The server finds what the other tests cannot.
	for what, text := range map[string]string{
		"an unknown field": `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 1, targetport: 2}]}}`,
		"a wrong value":    `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 70000}]}}`,
		"a resource":       `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: -1Gi}}}}`,
		"a monitor":        `{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: a}, spec: {endpoints: [{interval: often}], selector: {}}}`,
		"a root container": `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a, securityContext: {runAsUser: 0}}]}}`,
	} {
		if code, answer := s.apply(t, []byte(text), true); code < 400 {
			t.Errorf("the server accepts %s: %d\n%s", what, code, answer)
		}
	}
}

// apiServer is a running API server.
type apiServer struct {
	base, token string
	client      http.Client
	resources   map[meta.TypeMeta]meta.APIResource
}

// startAPIServer starts etcd and an API server on loopback, until the test ends.
func startAPIServer(t *testing.T, binary string) *apiServer {
	t.Helper()
	dir := t.TempDir()
	etcd := "http://" + freeAddress(t)
	start(t, exec.Command("etcd", "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://"+freeAddress(t), "--unsafe-no-fsync"))
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	accounts, tokens := filepath.Join(dir, "accounts.pem"), filepath.Join(dir, "tokens.csv")
	s := &apiServer{base: "https://" + freeAddress(t), token: rand.Text(), resources: make(map[meta.TypeMeta]meta.APIResource)}
	for file, text := range map[string][]byte{
		accounts: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		tokens:   []byte(s.token + ",test,test,system:masters\n"),
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.base, "https://"))
	certs := filepath.Join(dir, "certs")
	// The service accounts of pods are created by the controller manager, which does not run.
	start(t, exec.Command(binary, "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", certs, "--token-auth-file", tokens,
		"--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", accounts,
		"--service-account-signing-key-file", accounts, "--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"))
	wait(t, "the API server is ready", func() bool {
		text, err := os.ReadFile(filepath.Join(certs, "apiserver.crt"))
		if err != nil {
			return false
		}
		known := x509.NewCertPool()
		known.AppendCertsFromPEM(text)
		s.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: known}}
		code, _, _, err := s.do(t.Context(), http.MethodGet, "/readyz", nil)
		return err == nil && code == http.StatusOK
	})
	return s
}

// start starts a program, and kills it when the test ends. The output of a failed test has the end of the program's log.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", cmd.Path, text[max(0, len(text)-5000):])
		}
		_ = log.Close()
	})
}

// freeAddress returns an address of loopback with a port that is free now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Minute); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// do makes a request, and returns the status, the body and the warnings of the answer.
func (s *apiServer) do(ctx context.Context, method, path string, body []byte) (code int, answer []byte, warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	if body != nil {
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	res, err := s.client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, res.Header.Values("Warning"), err
}

// store creates an object.
func (s *apiServer) store(t *testing.T, text []byte) {
	t.Helper()
	if code, answer := s.apply(t, text, false); code != http.StatusCreated {
		t.Fatalf("the server answers %d\n%s", code, answer)
	}
}

// apply applies an object server-side. A warning fails the test.
func (s *apiServer) apply(t *testing.T, text []byte, dry bool) (code int, answer []byte) {
	t.Helper()
	var o struct {
		meta.TypeMeta `json:",inline"`
		Metadata      core.ObjectReference `json:"metadata"`
	}
	if err := yaml.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	resource := s.resource(t, o.TypeMeta)
	path := groupPath(o.APIVersion)
	if resource.Namespaced {
		path += "/namespaces/" + installed.Namespace
	}
	query := url.Values{"fieldManager": {"test"}, "fieldValidation": {"Strict"}}
	if dry {
		query.Set("dryRun", "All")
	}
	code, answer, warnings, err := s.do(t.Context(), http.MethodPatch, fmt.Sprintf("%s/%s/%s?%s", path, resource.Name, o.Metadata.Name, query.Encode()), text)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) > 0 {
		t.Errorf("%s %s: the server warns: %q", o.Kind, o.Metadata.Name, warnings)
	}
	return code, answer
}

// resource returns how the server serves a kind. A kind that was defined before is served some time later.
func (s *apiServer) resource(t *testing.T, kind meta.TypeMeta) meta.APIResource {
	t.Helper()
	if _, known := s.resources[kind]; !known {
		wait(t, "the server serves "+kind.String(), func() bool {
			code, answer, _, err := s.do(t.Context(), http.MethodGet, groupPath(kind.APIVersion), nil)
			var list meta.APIResourceList
			if err != nil || code != http.StatusOK || json.Unmarshal(answer, &list) != nil {
				return false
			}
			for _, r := range list.APIResources {
				if !strings.Contains(r.Name, "/") { // "pods/log" is a part of a pod
					s.resources[meta.TypeMeta{APIVersion: kind.APIVersion, Kind: r.Kind}] = r
				}
			}
			_, known := s.resources[kind]
			return known
		})
	}
	return s.resources[kind]
}

// groupPath returns the path of a group and version, such as "apps/v1".
func groupPath(version string) string {
	if strings.Contains(version, "/") {
		return "/apis/" + version
	}
	return "/api/" + version
}
