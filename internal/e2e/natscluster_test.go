//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/internal/natsauth"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

const (
	sysPassword = "sys-password-of-a-test"
	replicas    = 3
)

// natsNode is one server of a natsCluster.
type natsNode struct {
	name    string
	port    string // of clients
	health  string // port of questions about its health
	store   string // its directory
	env     []string
	process *process
}

// addr is where clients reach the server.
func (n *natsNode) addr() string { return net.JoinHostPort("127.0.0.1", n.port) }

// natsCluster is three NATS servers, each a process, with the configuration of deploy/nats.
type natsCluster struct {
	t     testing.TB
	dir   string
	seed  string // file with the account seed that signs executors' log-ins
	nodes [replicas]*natsNode
	conn  *nats.Conn // as the system side, for looking
}

// newNATSCluster starts three servers and returns when they have found each other. The streams are made by the roles,
// which need --nats-replicas 3.
func newNATSCluster(t testing.TB, dir string) *natsCluster {
	t.Helper()
	c := &natsCluster{t: t, dir: dir, seed: filepath.Join(dir, "issuer.seed")}
	conf, err := filepath.Abs(filepath.Join("..", "..", "deploy", "nats", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	public := writeIssuer(t, c.seed)
	var routes, urls []string
	ports := make([]string, replicas)
	for i := range replicas {
		ports[i] = freePort(t)
		routes = append(routes, "nats://127.0.0.1:"+ports[i])
	}
	for i := range replicas {
		n := &natsNode{name: fmt.Sprintf("n%d", i+1), port: freePort(t), health: freePort(t)}
		n.store = filepath.Join(dir, "nats-"+n.name)
		n.env = []string{
			envConf + "=" + conf, envPort + "=" + n.port, envName + "=" + n.name, envRoute + "=" + ports[i],
			envRoutes + "=" + strings.Join(routes, ","), envHealth + "=" + n.health, "BELFRY_NATS_ISSUER=" + public,
			"BELFRY_NATS_PASSWORD=" + natsPassword, "BELFRY_NATS_SYS_PASSWORD=" + sysPassword, "BELFRY_NATS_STORE=" + n.store,
		}
		c.nodes[i] = n
		urls = append(urls, "nats://"+n.addr())
	}
	for i := range c.nodes {
		c.launch(i)
	}
	c.connect(strings.Join(urls, ","))
	eventually(t, patience, "the NATS cluster has a leader", c.metaCurrent)
	return c
}

// writeIssuer makes an account seed for the auth callout and returns its public key.
func writeIssuer(t testing.TB, path string) string {
	t.Helper()
	issuer, err := natsauth.NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	public, err := issuer.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := issuer.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return public
}

func (c *natsCluster) connect(urls string) {
	c.t.Helper()
	conn, err := nats.Connect(urls, nats.UserInfo("belfry", natsPassword), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		c.t.Fatal(err)
	}
	c.conn = conn
	c.t.Cleanup(conn.Close)
}

// systemURL is for --nats-url of the system side's roles; through maps a server to another address, such as that of
// a proxy, and may be nil.
func (c *natsCluster) systemURL(through func(i int) string) string {
	return c.urls("belfry:"+natsPassword+"@", through)
}

// executorURL is for executors, as systemURL.
func (c *natsCluster) executorURL(through func(i int) string) string { return c.urls("", through) }

func (c *natsCluster) urls(user string, through func(i int) string) string {
	urls := make([]string, replicas)
	for i, n := range c.nodes {
		addr := n.addr()
		if through != nil {
			addr = through(i)
		}
		urls[i] = "nats://" + user + addr
	}
	return strings.Join(urls, ",")
}

// launch starts a server and does not wait.
func (c *natsCluster) launch(i int) {
	c.t.Helper()
	n := c.nodes[i]
	start := spawn
	if n.process == nil { // its first life tells why the cluster did not come up
		start = launch
	}
	n.process = start(c.t, "nats "+n.name, "nats", c.dir, n.env)
}

// wipe deletes what a server has stored. It must have been killed.
func (c *natsCluster) wipe(i int) {
	c.t.Helper()
	if err := os.RemoveAll(c.nodes[i].store); err != nil {
		c.t.Fatal(err)
	}
}

// current reports whether every server is there and every stream and consumer has all its copies up to date, so that
// one of them may be lost.
func (c *natsCluster) current() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	js, err := jetstream.New(c.conn)
	if err != nil || !c.metaCurrent() {
		return false
	}
	for _, name := range []string{natsinfra.Results, natsinfra.Logs, natsinfra.Events, natsinfra.Dead, "KV_" + natsinfra.Instances} {
		s, err := js.Stream(ctx, name)
		if err != nil || !copiesCurrent(s.CachedInfo().Cluster) {
			return false
		}
		consumers := s.ListConsumers(ctx)
		for info := range consumers.Info() {
			if info.Config.Durable != "" && info.Config.Replicas != 1 && !copiesCurrent(info.Cluster) {
				return false
			}
		}
		if consumers.Err() != nil {
			return false
		}
	}
	return true
}

func copiesCurrent(c *jetstream.ClusterInfo) bool {
	if c == nil || c.Leader == "" || len(c.Replicas) != replicas-1 {
		return false
	}
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			return false
		}
	}
	return true
}

// metaCurrent reports whether the cluster has a leader that has heard of every server lately.
func (c *natsCluster) metaCurrent() bool {
	for _, n := range c.nodes {
		if meta := n.meta(); meta.Leader == n.name { // only the leader's word about the others counts
			return len(meta.Replicas) == replicas-1 && !slices.ContainsFunc(meta.Replicas, func(r metaReplica) bool { return !r.Current || r.Offline })
		}
	}
	return false
}

type metaInfo struct {
	Leader   string        `json:"leader"`
	Replicas []metaReplica `json:"replicas"`
}

type metaReplica struct {
	Current bool `json:"current"`
	Offline bool `json:"offline"`
}

// meta asks the server about the group of servers; zero where it does not answer.
func (n *natsNode) meta() metaInfo {
	var answer struct {
		Meta metaInfo `json:"meta_cluster"`
	}
	asking := http.Client{Timeout: time.Second}
	res, err := asking.Get("http://127.0.0.1:" + n.health + "/jsz")
	if err != nil {
		return metaInfo{}
	}
	defer res.Body.Close()
	if json.NewDecoder(res.Body).Decode(&answer) != nil {
		return metaInfo{}
	}
	return answer.Meta
}

// A cluster of three keeps its streams when one server loses all that it had, and comes back to three copies.
func TestNATSClusterHelper(t *testing.T) {
	t.Parallel()
	c := newNATSCluster(t, t.TempDir())
	js, err := jetstream.New(c.conn)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the streams can be made", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return natsinfra.Ensure(ctx, js, replicas) == nil
	})
	if _, err := js.Publish(t.Context(), "belfry.v1.result.g", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "all copies are current", c.current)
	c.nodes[0].process.kill()
	if c.current() {
		t.Error("the cluster counts as current without one of its servers")
	}
	c.wipe(0)
	c.launch(0)
	eventually(t, patience, "all copies are current again", c.current)
	s, err := js.Stream(t.Context(), natsinfra.Results)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("the stream has %d messages, want the one that was there", n)
	}
}
