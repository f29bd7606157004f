package deploy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/freeport"
	"github.com/belfryhq/belfry/internal/natsauth"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/pgtest"
)

// envNATSConf makes the test binary a NATS server with this configuration file.
const envNATSConf = "DEPLOY_NATS_CONF"

// natsServer runs a NATS server, like the image nats.
func natsServer(conf string) int {
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	opts.NoSigs = true
	ns, err := server.NewServer(opts)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ns.ConfigureLogger()
	ns.Start()
	ns.WaitForShutdown()
	return 0
}

// world runs the services of compose.yaml as processes on this machine. Every host name and port of a container is
// replaced by an address on 127.0.0.1.
type world struct {
	t         *testing.T
	services  map[string]types.ServiceConfig
	secrets   map[string]string // the .env
	addresses *strings.Replacer
	nodes     map[string]*process
	clients   map[string]string // by node: the address for clients
	database  string
	seed      string // file
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, nodes: make(map[string]*process), clients: make(map[string]string), secrets: filled(t)}
	issuer, err := natsauth.NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := issuer.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if w.secrets["NATS_ISSUER"], err = issuer.PublicKey(); err != nil {
		t.Fatal(err)
	}
	// A NATS server would read these as numbers if compose.yaml did not quote them.
	w.secrets["NATS_PASSWORD"] = "123456789012345678901234567890"
	w.secrets["NATS_CLUSTER_PASSWORD"] = "0000000000000000000000000123k"
	w.seed = filepath.Join(t.TempDir(), "issuer.seed")
	if err := os.WriteFile(w.seed, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := load(t.Context(), checkout(t), w.secrets, "executors", "gateway")
	if err != nil {
		t.Fatal(err)
	}
	w.services = p.Services
	w.database = pgtest.URL(t)
	return w
}

// startNATS starts the services nats-1 to nats-3.
func (w *world) startNATS() {
	w.t.Helper()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(w.services)), func(n string) bool { return !strings.HasPrefix(n, "nats-") })
	if len(names) != 3 {
		w.t.Fatalf("compose.yaml has the servers %q", names)
	}
	ports := freePorts(w.t, 3*len(names))
	var replaced []string
	for i, name := range names {
		w.clients[name] = ports[3*i]
		replaced = append(replaced, name+":4222", ports[3*i], name+":6222", ports[3*i+1])
	}
	w.addresses = strings.NewReplacer(replaced...)
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	health := make(map[string]string)
	for i, name := range names {
		service := w.services[name]
		env := w.environment(name)
		// compose.yaml has 0.0.0.0 and the ports of a container.
		local := strings.NewReplacer("0.0.0.0:4222", ports[3*i], "0.0.0.0:6222", ports[3*i+1], "127.0.0.1:8222", ports[3*i+2])
		for key, value := range env {
			env[key] = local.Replace(value)
		}
		if env["BELFRY_NATS_STORE"] != "/data" || mountedVolume(service, "/data") == "" {
			w.t.Errorf("%s stores in %s, which is not a volume", name, env["BELFRY_NATS_STORE"])
		}
		env["BELFRY_NATS_STORE"] = w.t.TempDir()
		env[envNATSConf] = mounted(service, service.Command[slices.Index(service.Command, "--config")+1])
		w.nodes[name] = start(w.t, name, self, env)
		health[name] = local.Replace(service.HealthCheck.Test[len(service.HealthCheck.Test)-1])
	}
	for name, address := range health {
		eventually(w.t, name+" is healthy at "+address, func() bool {
			status, _ := fetch(address, "")
			return status == http.StatusOK
		})
	}
}

func mountedVolume(s types.ServiceConfig, path string) string {
	for _, v := range s.Volumes {
		if v.Type == types.VolumeTypeVolume && v.Target == path {
			return v.Source
		}
	}
	return ""
}

// environment returns a service's environment with local addresses.
func (w *world) environment(service string) map[string]string {
	env := environment(w.services[service])
	for key, value := range env {
		if key != "BELFRY_DATABASE_URL" {
			env[key] = w.addresses.Replace(value)
		}
	}
	return env
}

// role starts a service that runs Belfry's image.
func (w *world) role(service string, change map[string]string) *process {
	w.t.Helper()
	env := w.environment(service)
	for key, value := range map[string]string{
		"BELFRY_DATABASE_URL": w.database, "BELFRY_NATS_ISSUER_SEED": w.seed,
		"BELFRY_METRICS": "127.0.0.1:0", "BELFRY_HTTP": "127.0.0.1:0",
	} {
		if env[key] != "" {
			env[key] = value
		}
	}
	maps.Copy(env, change)
	return start(w.t, service, binary(w.t), env, w.services[service].Command...)
}

// freePorts returns addresses with free ports.
func freePorts(t testing.TB, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	}
	return addresses
}

func fetch(address, token string) (int, string) {
	request, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// TestComposeRuns starts all services of compose.yaml except Postgres's image and the monitoring, without Docker, and
// runs jobs, also on an executor of XXL-JOB. The binary is the image's.
func TestComposeRuns(t *testing.T) {
	binary(t)
	w := newWorld(t)
	w.startNATS()
	w.role("migrate", nil).done()
	var metrics []string
	for _, service := range []string{"scheduler", "dispatcher"} {
		for range instances(w.services[service]) {
			p := w.role(service, nil)
			metrics = append(metrics, p.says("metrics: "))
			p.says(`"msg":"ready"`)
		}
	}
	var consoles []string
	for range instances(w.services["console"]) {
		consoles = append(consoles, w.role("console", nil).says("console: "))
	}
	admin, session := w.logIn(consoles[0])
	said := w.pastesThePage(consoles[0])
	token, viewer := said["group token default"], said["token create prometheus --role viewer"]
	if token == "" || viewer == "" {
		t.Fatalf("the page's commands create no tokens: %q", slices.Sorted(maps.Keys(said)))
	}
	for _, service := range []string{"executor-1", "executor-2"} {
		p := w.role(service, map[string]string{"BELFRY_TOKEN": token, "BELFRY_SPOOL_DIR": t.TempDir()})
		metrics = append(metrics, p.says("metrics: "))
		eventually(t, service+" is listed", func() bool {
			list, err := admin.Instances(t.Context(), "default")
			return err == nil && slices.ContainsFunc(list, func(i domain.Instance) bool { return i.ID == service })
		})
	}
	metrics = append(metrics, w.servesXXLJob(admin)...)
	other, err := client.New(consoles[1], session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	w.runsAJob(other, "all servers")
	w.isReplicated()
	w.keepsGroupsApart(admin, token)
	w.showsMetrics(viewer, metrics, consoles)
	w.refusesStrangers()

	// Jobs still run with two of three servers. When all servers are down, each process reports it.
	w.nodes["nats-2"].kill()
	w.runsAJob(admin, "one server less")
	w.nodes["nats-1"].kill()
	w.nodes["nats-3"].kill()
	for _, address := range metrics[:4] { // executors report it only in their log
		eventually(t, address+" reports that NATS is unavailable", func() bool {
			_, text := fetch(address+"/metrics", "")
			return strings.Contains(text, "belfry_server_up{server=\"nats\"} 0\n") &&
				strings.Contains(text, "belfry_server_up{server=\"postgres\"} 1\n")
		})
	}
}

// logIn logs in with the admin's password from the environment of the first console.
func (w *world) logIn(console string) (*client.Client, string) {
	w.t.Helper()
	guest, err := client.New(console, "")
	if err != nil {
		w.t.Fatal(err)
	}
	defer guest.Close()
	var session client.Session
	eventually(w.t, "the admin may log in", func() bool {
		session, err = guest.Login(w.t.Context(), "admin", w.secrets["BELFRY_ADMIN_PASSWORD"])
		return err == nil
	})
	admin, err := client.New(console, session.Token)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(admin.Close)
	return admin, session.Token
}

// pastesThePage runs the commands of docs/deploy.md for the service cli, in their order. It returns the standard output of
// each.
func (w *world) pastesThePage(console string) map[string]string {
	w.t.Helper()
	said, home := make(map[string]string), w.t.TempDir()
	for _, args := range cliCommands(w.t) {
		cmd := exec.Command(binary(w.t), args...)
		cmd.Env = []string{"HOME=" + home, "BELFRY_SERVER=" + console}
		cmd.Stdin = strings.NewReader(w.secrets["BELFRY_ADMIN_PASSWORD"] + "\n")
		out, err := cmd.Output()
		if err != nil {
			w.t.Fatalf("%s: %v", args, err)
		}
		said[strings.Join(args, " ")] = strings.TrimSpace(string(out))
	}
	return said
}

// cliCommands returns the commands of docs/deploy.md for the service cli, in their order.
func cliCommands(t testing.TB) [][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands [][]string
	for _, m := range regexp.MustCompile(`docker compose run --rm -T cli ([a-z0-9 -]+[a-z])`).FindAllStringSubmatch(string(page), -1) {
		commands = append(commands, strings.Fields(m[1]))
	}
	return commands
}

// runsAJob creates a job that fires once by its schedule, and waits until it has run.
func (w *world) runsAJob(c *client.Client, name string) {
	w.t.Helper()
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Handler, spec.Param = "default", name, "echo", "ding"
	at := domain.At(time.Now().Add(2 * time.Second))
	spec.Schedule = domain.Schedule{Kind: domain.ScheduleOnce, At: &at}
	job, err := c.CreateJob(w.t.Context(), spec)
	if err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, "the job has run: "+name, func() bool {
		runs, err := c.Runs(w.t.Context(), client.RunFilter{JobID: job.ID}, 5)
		return err == nil && len(runs) == 1 && runs[0].State == domain.Succeeded
	})
}

func (w *world) system() *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(w.environment("scheduler")["BELFRY_NATS_URL"], nats.Timeout(patience))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// isReplicated checks that each stream is on all three servers.
func (w *world) isReplicated() {
	w.t.Helper()
	js, err := jetstream.New(w.system())
	if err != nil {
		w.t.Fatal(err)
	}
	// A role that was started without --nats-replicas does not remove replicas.
	if err := natsinfra.Ensure(w.t.Context(), js, 1); err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{natsinfra.Results, natsinfra.Logs, natsinfra.Events, natsinfra.Dead, natsinfra.Overflow, natsinfra.Probe, "KV_" + natsinfra.Instances} {
		eventually(w.t, name+" has three current replicas", func() bool {
			stream, err := js.Stream(w.t.Context(), name)
			if err != nil {
				return false
			}
			info := stream.CachedInfo()
			return info.Config.Replicas == 3 && info.Cluster != nil && info.Cluster.Leader != "" && len(info.Cluster.Replicas) == 2 &&
				!slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
		})
	}
}

// keepsGroupsApart checks that on every server a group's token permits the subjects of that group, and no others.
func (w *world) keepsGroupsApart(admin *client.Client, token string) {
	w.t.Helper()
	if _, err := admin.CreateGroup(w.t.Context(), "other", ""); err != nil {
		w.t.Fatal(err)
	}
	for name, address := range w.clients {
		refusals := make(chan error, 8)
		nc, err := nats.Connect("nats://"+address, nats.Timeout(patience), nats.Token(token), nats.Name(natsauth.ClientName("default", "raw")),
			nats.CustomInboxPrefix(natsauth.InboxPrefix("default")),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refusals <- err }))
		if err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
		refused := func(what string, do func() error) {
			w.t.Helper()
			if err := errors.Join(do(), nc.Flush()); err != nil {
				w.t.Fatalf("%s: %v", name, err)
			}
			select {
			case err := <-refusals:
				if !errors.Is(err, nats.ErrPermissionViolation) {
					w.t.Errorf("%s: %s: %v", name, what, err)
				}
			case <-time.After(patience):
				w.t.Errorf("%s: %s is allowed", name, what)
			}
		}
		if _, err := nc.SubscribeSync("belfry.v1.trigger.default.raw"); err != nil {
			w.t.Error(err)
		}
		for _, subject := range []string{"belfry.v1.trigger.other.>", "belfry.v1.control.other.>", "belfry.v1.result.other", ">"} {
			refused("listening to "+subject, func() error { _, err := nc.SubscribeSync(subject); return err })
		}
		for _, subject := range []string{"belfry.v1.result.other", "belfry.v1.log.other", "$KV.belfry_instances.other.i", "$JS.API.INFO"} {
			refused("publishing to "+subject, func() error { return nc.Publish(subject, nil) })
		}
		nc.Close()
		if len(refusals) > 0 {
			w.t.Errorf("%s: a subject of the group is refused, too: %v", name, <-refusals)
		}
		for how, option := range map[string]nats.Option{
			"a wrong token": nats.Token("wrong"), "no token": nats.Name("nobody"),
			"another user's secret": nats.UserInfo("belfry", w.secrets["NATS_SYS_PASSWORD"]),
		} {
			if nc, err := nats.Connect("nats://"+address, option); err == nil {
				nc.Close()
				w.t.Errorf("%s: accepts %s", name, how)
			}
		}
	}
}

// showsMetrics checks the addresses that Prometheus scrapes. Consoles must require a token, and accept a viewer's.
func (w *world) showsMetrics(viewer string, roles, consoles []string) {
	w.t.Helper()
	for i, address := range slices.Concat(roles, consoles) {
		console := i >= len(roles)
		token := ""
		if console {
			token = viewer
			if status, _ := fetch(address+"/metrics", ""); status != http.StatusUnauthorized {
				w.t.Errorf("the console %s shows its metrics without a token: %d", address, status)
			}
		}
		status, text := fetch(address+"/metrics", token)
		if status != http.StatusOK || !strings.Contains(text, "process_resident_memory_bytes ") {
			w.t.Errorf("%s/metrics: %d\n%.500s", address, status, text)
		}
		if up := strings.Count(text, "\nbelfry_server_up{"); up != 3 && i < 4 {
			w.t.Errorf("%s shows %d servers", address, up)
		}
		if status, _ := fetch(address+"/healthz", ""); status != http.StatusOK {
			w.t.Errorf("%s/healthz: %d", address, status)
		}
	}
}

// refusesStrangers checks that no server joins the cluster without its password.
func (w *world) refusesStrangers() {
	w.t.Helper()
	routes := w.environment("nats-1")["BELFRY_NATS_ROUTES"]
	first, _, _ := strings.Cut(strings.Trim(routes, "[]"), ",")
	route, err := url.Parse(first)
	if err != nil {
		w.t.Fatal(err)
	}
	password, _ := route.User.Password()
	for shown, want := range map[string]string{password: "", "wrong": "Authorization Violation"} {
		conn, err := net.Dial("tcp", route.Host)
		if err != nil {
			w.t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			w.t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "CONNECT {\"user\":\"route\",\"pass\":%q,\"name\":\"x\",\"cluster\":\"belfry\"}\r\nPING\r\n", shown); err != nil {
			w.t.Fatal(err)
		}
		answer := ""
		lines := bufio.NewScanner(conn)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "PONG") && !strings.HasPrefix(answer, "-ERR") {
			answer = lines.Text()
		}
		if refused := strings.HasPrefix(answer, "-ERR"); refused != (want != "") || !strings.Contains(answer, want) {
			w.t.Errorf("a server with the password %q gets the answer %q", shown, answer)
		}
	}
}
