//go:build unix

package rig

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

	"github.com/belfryhq/belfry/internal/natsinfra"
)

// The passwords of NATS's users belfry and sys, and of the routes between the servers.
const (
	NATSPassword  = "system-side-password-of-a-test"
	SysPassword   = "sys-password-of-a-test"
	routePassword = "password-between-servers-of-a-test"
)

// Replicas is the number of servers in a cluster.
const Replicas = 3

// NATSNode is one server of a NATSCluster.
type NATSNode struct {
	*Process // the last one started

	Name   string
	port   string // for clients
	health string // port of the monitoring endpoint
	store  string // its directory
	env    []string
}

// Addr returns the server's address for clients.
func (n *NATSNode) Addr() string { return net.JoinHostPort("127.0.0.1", n.port) }

// NATSCluster is three NATS servers, each a process, with the configuration of deploy/nats.
type NATSCluster struct {
	t     testing.TB
	dir   string
	Seed  string // file with the account seed that signs log-ins of executors
	Nodes [Replicas]*NATSNode
	Conn  *nats.Conn // as user belfry, to observe the cluster

	Streams []string // that Current checks; those of this release, unless the test changes them
}

// NewNATSCluster starts three servers and returns when they form a cluster. The roles create the streams, and need --nats-replicas 3.
func NewNATSCluster(t testing.TB, dir string) *NATSCluster {
	t.Helper()
	c := &NATSCluster{t: t, dir: dir, Seed: filepath.Join(dir, "issuer.seed"), Streams: AllStreams()}
	conf := filepath.Join(Root(t), "deploy", "nats", "cluster.conf")
	public := WriteIssuer(t, c.Seed)
	var routes, urls []string
	ports := make([]string, Replicas)
	for i := range Replicas {
		ports[i] = FreePort(t)
		routes = append(routes, "nats://route:"+routePassword+"@127.0.0.1:"+ports[i])
	}
	for i := range Replicas {
		n := &NATSNode{Name: fmt.Sprintf("n%d", i+1), port: FreePort(t), health: FreePort(t)}
		n.store = filepath.Join(dir, "nats-"+n.Name)
		n.env = []string{
			EnvNATSConf + "=" + conf, EnvNATSPort + "=" + n.port, "BELFRY_NATS_NAME=" + n.Name, "BELFRY_NATS_LISTEN=" + n.Addr(),
			"BELFRY_NATS_CLUSTER_LISTEN=127.0.0.1:" + ports[i], "BELFRY_NATS_CLUSTER_PASSWORD=" + routePassword,
			"BELFRY_NATS_ROUTES=[" + strings.Join(routes, ", ") + "]", "BELFRY_NATS_MONITOR=127.0.0.1:" + n.health,
			"BELFRY_NATS_ISSUER=" + public, "BELFRY_NATS_PASSWORD=" + NATSPassword, "BELFRY_NATS_SYS_PASSWORD=" + SysPassword,
			"BELFRY_NATS_STORE=" + n.store,
		}
		c.Nodes[i] = n
		urls = append(urls, "nats://"+n.Addr())
	}
	for i := range c.Nodes {
		c.Launch(i)
	}
	c.connect(strings.Join(urls, ","))
	defer func() {
		if t.Failed() {
			c.showLogs()
		}
	}()
	Eventually(t, Patience, "the NATS cluster has a leader", func() bool {
		for _, n := range c.Nodes {
			select {
			case <-n.Gone():
				t.Fatalf("NATS server %s has ended: %v", n.Name, n.State())
			default:
			}
		}
		return c.metaCurrent()
	})
	return c
}

func (c *NATSCluster) showLogs() {
	for _, n := range c.Nodes {
		text, err := os.ReadFile(c.log(n))
		c.t.Logf("the log of %s (%v):\n%s", n.Name, err, text)
	}
}

func (c *NATSCluster) log(n *NATSNode) string { return filepath.Join(c.dir, n.Name+".log") }

func (c *NATSCluster) connect(urls string) {
	c.t.Helper()
	conn, err := nats.Connect(urls, nats.UserInfo("belfry", NATSPassword), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		c.t.Fatal(err)
	}
	c.Conn = conn
	c.t.Cleanup(conn.Close)
}

// SystemURL returns --nats-url for scheduler, dispatcher and console. If through is not nil, it maps a server to another address,
// such as that of a proxy.
func (c *NATSCluster) SystemURL(through func(i int) string) string {
	return c.urls("belfry:"+NATSPassword+"@", through)
}

// AccountURL returns --nats-system-url, with the user of NATS's system account. Through is as for SystemURL.
func (c *NATSCluster) AccountURL(through func(i int) string) string {
	return c.urls("sys:"+SysPassword+"@", through)
}

// ExecutorURL returns --nats-url for executors. Through is as for SystemURL.
func (c *NATSCluster) ExecutorURL(through func(i int) string) string { return c.urls("", through) }

func (c *NATSCluster) urls(user string, through func(i int) string) string {
	urls := make([]string, Replicas)
	for i, n := range c.Nodes {
		addr := n.Addr()
		if through != nil {
			addr = through(i)
		}
		urls[i] = "nats://" + user + addr
	}
	return strings.Join(urls, ",")
}

// Launch starts a server and does not wait.
func (c *NATSCluster) Launch(i int) {
	c.t.Helper()
	n := c.Nodes[i]
	n.Process = Start(c.t, "nats", c.dir, c.log(n), n.env)
}

// Wipe deletes the storage of a server. The server must have been killed.
func (c *NATSCluster) Wipe(i int) {
	c.t.Helper()
	if err := os.RemoveAll(c.Nodes[i].store); err != nil {
		c.t.Fatal(err)
	}
}

// AllStreams returns the names of the streams of this release.
func AllStreams() []string {
	return []string{natsinfra.Results, natsinfra.Logs, natsinfra.Events, natsinfra.Dead, natsinfra.Overflow, natsinfra.Probe, "KV_" + natsinfra.Instances}
}

// Current reports whether every server is up and all copies of every stream and consumer are up to date, so that the cluster
// survives the loss of one server.
func (c *NATSCluster) Current() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	js, err := jetstream.New(c.Conn)
	if err != nil || !c.metaCurrent() {
		return false
	}
	for _, name := range c.Streams {
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
	if c == nil || c.Leader == "" || len(c.Replicas) != Replicas-1 {
		return false
	}
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			return false
		}
	}
	return true
}

// metaCurrent reports whether the cluster has a leader that sees every other server as current.
func (c *NATSCluster) metaCurrent() bool {
	for _, n := range c.Nodes {
		if meta := n.meta(); meta.Leader == n.Name { // only the leader knows the state of the others
			return len(meta.Replicas) == Replicas-1 && !slices.ContainsFunc(meta.Replicas, func(r metaReplica) bool { return !r.Current || r.Offline })
		}
	}
	return false
}

type metaInfo struct {
	Leader   string        `json:"leader"`
	Replicas []metaReplica `json:"Replicas"`
}

type metaReplica struct {
	Current bool `json:"current"`
	Offline bool `json:"offline"`
}

// meta asks the server for the state of the cluster. It returns zero if the server does not answer.
func (n *NATSNode) meta() metaInfo {
	var answer struct {
		Meta metaInfo `json:"meta_cluster"`
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+n.health+"/jsz", nil)
	if err != nil {
		return metaInfo{}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return metaInfo{}
	}
	defer res.Body.Close()
	if json.NewDecoder(res.Body).Decode(&answer) != nil {
		return metaInfo{}
	}
	return answer.Meta
}
