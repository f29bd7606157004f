package deploy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// containers runs the services of compose.yaml with podman in one network, under their names, with their users, limits, volumes and
// health checks. The network is internal, because others need rules of the machine's firewall. So no port is published.
type containers struct {
	t        *testing.T
	services map[string]types.ServiceConfig
	secrets  map[string]string // the .env
	images   string            // prefix of the images' names
	network  string
	names    map[string][]string // containers by service
	hosts    []string            // arguments of podman that make the services' names known
	address  map[string]string   // by container
}

// TestComposeInContainers starts the services of compose.yaml with the secrets of make-env.sh, follows the commands of docs/deploy.md, runs
// jobs, stops a NATS server, and stops everything in order. The images are made by .ci/release/compose-test.
func TestComposeInContainers(t *testing.T) {
	images := os.Getenv("BELFRY_TEST_IMAGES")
	if images == "" {
		t.Skip("NOT COVERED: containers need images; `.ci/long compose` makes them")
	}
	c := newContainers(t, images)
	for _, service := range []string{"postgres", "nats-1", "nats-2", "nats-3"} {
		c.start(service)
	}
	for _, service := range []string{"postgres", "nats-1", "nats-2", "nats-3"} {
		c.isHealthy(service)
	}
	c.start("migrate")
	if code := c.podman("", "wait", c.names["migrate"][0]); code != "0" {
		t.Fatalf("the migration ends with exit code %s", code)
	}
	servers := []string{"scheduler", "dispatcher", "console"}
	for _, service := range servers {
		c.start(service)
	}
	for _, service := range servers {
		c.isHealthy(service)
	}

	said := make(map[string]string)
	for _, args := range cliCommands(t) {
		said[strings.Join(args, " ")] = c.cli(c.secrets["BELFRY_ADMIN_PASSWORD"]+"\n", args...)
	}
	for _, service := range []string{"executor-1", "executor-2"} {
		c.start(service, "BELFRY_TOKEN="+said["group token default"])
		c.isHealthy(service)
		if list := c.cli("", "group", "instances", "default"); !strings.Contains(list, service) {
			t.Errorf("%s is not listed:\n%s", service, list)
		}
	}
	for _, service := range []string{"gateway-1", "gateway-2"} {
		c.start(service)
		c.isHealthy(service)
	}
	c.runsAJob("all containers")
	c.podman("", "kill", c.names["nats-2"][0])
	c.runsAJob("one NATS server less")

	for _, service := range []string{"executor-1", "executor-2", "gateway-1", "gateway-2", "console", "dispatcher", "scheduler"} {
		for _, name := range c.names[service] {
			c.podman("", "stop", "--time", "90", name)
			if code := c.podman("", "inspect", "--format", "{{.State.ExitCode}}", name); code != "0" {
				t.Errorf("%s does not stop in order: exit code %s", name, code)
			}
		}
	}
	t.Logf("%d containers of %d services, with memory and CPU limits; two jobs ran, one with two of three NATS servers", len(c.address), len(c.names))
}

func newContainers(t *testing.T, images string) *containers {
	t.Helper()
	made, err := exec.Command("./make-env.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := &containers{
		t: t, secrets: assignments(t, string(made)), images: images,
		network: fmt.Sprintf("belfry-compose-%d", os.Getpid()), names: make(map[string][]string), address: make(map[string]string),
	}
	p, err := load(t.Context(), checkout(t), c.secrets, "executors", "gateway", "cli")
	if err != nil {
		t.Fatal(err)
	}
	c.services = p.Services
	c.podman("", "network", "create", "--internal", c.network)
	t.Cleanup(func() { c.podman("", "network", "rm", "--force", c.network) })
	subnet, err := netip.ParsePrefix(c.podman("", "network", "inspect", "--format", "{{(index .Subnets 0).Subnet}}", c.network))
	if err != nil {
		t.Fatal(err)
	}
	address := subnet.Addr()
	for range 10 { // the first address belongs to this machine
		address = address.Next()
	}
	for _, service := range slices.Sorted(maps.Keys(c.services)) {
		if service == "prometheus" || service == "grafana" {
			continue
		}
		n := instances(c.services[service])
		for i := range n {
			name := service
			if n > 1 {
				name = fmt.Sprintf("%s-%d", service, i+1)
			}
			c.names[service] = append(c.names[service], c.network+"-"+name)
			c.address[name] = address.String()
			if i == 0 {
				c.hosts = append(c.hosts, "--add-host="+service+":"+address.String())
			}
			address = address.Next()
		}
	}
	return c
}

// start starts the containers of a service.
func (c *containers) start(service string, env ...string) {
	c.t.Helper()
	for _, name := range c.names[service] {
		args := append([]string{"--detach", "--name", name, "--ip", c.address[strings.TrimPrefix(name, c.network+"-")]}, c.options(service, env...)...)
		c.podman("", append(args, c.services[service].Command...)...)
		c.t.Cleanup(func() {
			if c.t.Failed() {
				out, _ := exec.Command("podman", "logs", "--tail", "30", name).CombinedOutput()
				c.t.Logf("%s:\n%s", name, out)
			}
			c.podman("", "rm", "--force", "--volumes", "--time", "2", name)
		})
	}
}

// cli runs a command of the command line in a container of the service cli.
func (c *containers) cli(stdin string, args ...string) string {
	c.t.Helper()
	options := append([]string{"--rm", "--interactive", "--ip", c.address["cli"]}, c.options("cli")...)
	return c.podman(stdin, append(options, args...)...)
}

// runsAJob creates a job, triggers it, and waits until its run has succeeded.
func (c *containers) runsAJob(name string) {
	c.t.Helper()
	c.cli(fmt.Sprintf("{group: default, name: %q, handler: echo, param: ding, schedule: {kind: none}}", name), "job", "apply", "-f", "-")
	c.cli("", "job", "trigger", "default/"+name, "--wait")
}

// options returns the options of a service for "podman run", and its image.
func (c *containers) options(service string, env ...string) []string {
	c.t.Helper()
	s := c.services[service]
	// A restricted machine does not allow podman's own limits of open files and processes.
	args := append([]string{"--network", c.network, "--ulimit", "nofile=1024:20000", "--ulimit", "nproc=1000:1000"}, c.hosts...)
	limits := s.Deploy.Resources.Limits
	if limits == nil || limits.MemoryBytes == 0 || limits.NanoCPUs == 0 {
		c.t.Fatalf("%s has the limits %+v", service, limits)
	}
	args = append(args, "--memory", fmt.Sprint(int64(limits.MemoryBytes)), "--cpus", fmt.Sprint(float64(limits.NanoCPUs)),
		"--log-driver", "k8s-file", "--log-opt", "max-size="+s.Logging.Options["max-size"])
	if s.ReadOnly {
		args = append(args, "--read-only")
	}
	for _, capability := range s.CapDrop {
		args = append(args, "--cap-drop", capability)
	}
	for _, option := range s.SecurityOpt {
		args = append(args, "--security-opt", strings.TrimSuffix(option, ":true"))
	}
	if check := s.HealthCheck; check != nil && check.Disable {
		args = append(args, "--no-healthcheck")
	} else if check != nil {
		if check.Test[0] != "CMD" {
			c.t.Fatalf("%s has the health check %q", service, check.Test)
		}
		args = append(args, "--health-cmd", `["`+strings.Join(check.Test[1:], `","`)+`"]`, // podman adds CMD
			"--health-interval", "disable", "--health-timeout", time.Duration(*check.Timeout).String())
	}
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		if name != "BELFRY_TOKEN" { // the token in secrets/executor.env is not the one of this installation
			args = append(args, "--env", name+"="+*s.Environment[name])
		}
	}
	for _, e := range env {
		args = append(args, "--env", e)
	}
	for _, v := range s.Volumes {
		mount := v.Source + ":" + v.Target
		if v.Type == types.VolumeTypeVolume {
			mount = c.network + "-" + mount
			c.t.Cleanup(func() { c.podman("", "volume", "rm", "--force", c.network+"-"+v.Source) })
		}
		if v.ReadOnly {
			mount += ":ro"
		}
		args = append(args, "--volume", mount)
	}
	for _, secret := range s.Secrets {
		args = append(args, "--volume", c.secretFile(secret)+":/run/secrets/"+secret.Source+":ro")
	}
	name, _, _ := strings.Cut(filepath.Base(s.Image), ":")
	image := c.images + name + ":test"
	if name == "belfry" {
		image = c.images + "belfry:" + c.secrets["VERSION"]
	}
	return append(args, image)
}

// secretFile writes a secret into a file with the owner and the mode that compose gives it.
func (c *containers) secretFile(secret types.ServiceSecretConfig) string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), secret.Source)
	var uid, gid int
	_, err := fmt.Sscan(secret.UID, &uid)
	_, err2 := fmt.Sscan(secret.GID, &gid)
	if err := errors.Join(err, err2, os.WriteFile(path, []byte(c.secrets["NATS_ISSUER_SEED"]), os.FileMode(*secret.Mode)), os.Chown(path, uid, gid)); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// isHealthy waits until the health checks of a service succeed.
func (c *containers) isHealthy(service string) {
	c.t.Helper()
	for _, name := range c.names[service] {
		eventually(c.t, name+" is healthy", func() bool {
			if exec.Command("podman", "healthcheck", "run", name).Run() == nil {
				return true
			}
			if state := c.podman("", "inspect", "--format", "{{.State.Status}}", name); state != "running" {
				c.t.Fatalf("%s is %s", name, state)
			}
			return false
		})
	}
}

// podman runs a command of podman and returns its standard output. A command without a verb is "run".
func (c *containers) podman(stdin string, args ...string) string {
	c.t.Helper()
	if strings.HasPrefix(args[0], "--") {
		args = append([]string{"--runtime", "runc", "--log-level=fatal", "run"}, args...)
	}
	cmd := exec.Command("podman", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		c.t.Errorf("podman %s: %v\n%s%s", strings.Join(args, " "), err, out, problems.String())
		c.t.FailNow()
	}
	return strings.TrimSpace(string(out))
}
