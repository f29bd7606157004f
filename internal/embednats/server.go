package embednats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	account = "BELFRY"

	// Callers bound a start by their context; this is for those who do not. Recovering full streams from a slow
	// disk takes seconds.
	startTimeout = 60 * time.Second
	readyPoll    = 10 * time.Millisecond

	syncInterval = 5 * time.Second
	// Clients give a log-in 2 s; the server should not give up before them.
	authTimeoutSeconds = 3
	tlsTimeoutSeconds  = 5

	defaultMaxStore  = 8 << 30
	defaultMaxMemory = 128 << 20 // consumers' state; no stream of ours is in memory
	maxPayload       = 1 << 20
)

// Config says where the server listens and stores. Only StoreDir is required.
type Config struct {
	// StoreDir is made if missing, for this user alone.
	StoreDir string
	// Host is an address of this machine, 127.0.0.1 if empty.
	Host string
	// Port is a TCP port; 0 takes a free one.
	Port int
	// MaxStoreBytes bounds what JetStream may keep on disk, 8 GiB if 0. Bounds of streams are promises within
	// it, so it must not be less than natsinfra.StorageBytes.
	MaxStoreBytes int64
	// TLS is how the server speaks on its port, nil for in the clear. Connections within the process need none.
	TLS *tls.Config
	// Log hears the server's warnings and errors, and at level debug everything it says.
	Log *slog.Logger
}

// Server is a running NATS server.
type Server struct {
	ns     *server.Server
	lock   *os.File
	scheme string
	host   string
	system nkeys.KeyPair
	issuer nkeys.KeyPair
	done   chan struct{} // closed when the server has ended and StoreDir is free
}

// Start returns when the server takes connections and has recovered its streams. The error has code conflict
// when the port is in use or another server has StoreDir.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := ctx.Err(); err != nil {
		return nil, domain.WrapError(domain.Unavailable, "start the NATS server", err)
	}
	if cfg.StoreDir == "" {
		return nil, domain.NewError(domain.Invalid, "the NATS server needs a store directory")
	}
	if cfg.Port < 0 || cfg.Port > 65535 {
		return nil, domain.NewError(domain.Invalid, fmt.Sprintf("%d is no TCP port (--nats)", cfg.Port))
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.MaxStoreBytes == 0 {
		cfg.MaxStoreBytes = defaultMaxStore
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.StoreDir, 0o700); err != nil {
		return nil, domain.WrapError(domain.Internal, "make the NATS store directory", err)
	}
	lock, err := lockDir(cfg.StoreDir)
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.lock = lock
	go func() {
		s.ns.WaitForShutdown()
		// Closing the file releases the lock; nothing can be done about a failure, and the exit releases it too.
		_ = s.lock.Close()
		close(s.done)
	}()
	return s, nil
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	issuer, err := loadIssuer(filepath.Join(cfg.StoreDir, "issuer.seed"))
	if err != nil {
		return nil, err
	}
	system, err := nkeys.CreateUser()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "make a NATS key", err)
	}
	opts, err := options(cfg, issuer, system)
	if err != nil {
		return nil, err
	}
	if err := probe(cfg.Host, cfg.Port); err != nil {
		return nil, err
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "prepare the NATS server", err)
	}
	log := newLogger(cfg.Log)
	ns.SetLoggerV2(log, log.debug(), false, false)
	go ns.Start()
	if err := awaitReady(ctx, ns, log.fatal); err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, err
	}
	scheme := "nats://"
	if cfg.TLS != nil {
		scheme = "tls://"
	}
	return &Server{ns: ns, scheme: scheme, host: cfg.Host, system: system, issuer: issuer, done: make(chan struct{})}, nil
}

// options states accounts and log-ins in the server's own configuration language, as deploy/nats/nats.conf
// does, because only there JetStream is part of an account before clients can connect.
func options(cfg Config, issuer, system nkeys.KeyPair) (*server.Options, error) {
	issuerKey, err := issuer.PublicKey()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "read the issuer key", err)
	}
	systemKey, err := system.PublicKey()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "read the NATS key", err)
	}
	opts := &server.Options{}
	rules := fmt.Sprintf(`
		accounts { %[1]s { jetstream: enabled, users: [ { nkey: %[2]s } ] } }
		authorization {
			timeout: %[4]d
			auth_callout { issuer: %[3]s, account: %[1]s, auth_users: [ %[2]s ], allowed_accounts: [ %[1]s ] }
		}`, account, systemKey, issuerKey, authTimeoutSeconds)
	if err := opts.ProcessConfigString(rules); err != nil {
		return nil, domain.WrapError(domain.Internal, "configure the NATS server", err)
	}
	opts.ServerName = "belfry"
	opts.Host = cfg.Host
	opts.Port = cfg.Port
	if cfg.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	opts.NoSigs = true
	opts.NoLog = true
	opts.DisableJetStreamBanner = true
	opts.MaxPayload = maxPayload
	opts.JetStream = true
	opts.StoreDir = cfg.StoreDir
	opts.JetStreamMaxStore = cfg.MaxStoreBytes
	opts.JetStreamMaxMemory = defaultMaxMemory
	opts.SyncInterval = syncInterval
	if cfg.TLS != nil {
		opts.TLS = true
		opts.TLSConfig = cfg.TLS
		opts.TLSTimeout = tlsTimeoutSeconds
	}
	return opts, nil
}

// probe finds a used port before any stream is recovered. Somebody may still take it in between; then the
// server's own complaint ends the start.
func probe(host string, port int) error {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return domain.WrapError(domain.Conflict,
			fmt.Sprintf("NATS cannot listen on %s: port %d is in use; choose another one with --nats", address, port), err)
	}
	if err != nil {
		return domain.WrapError(domain.Invalid, fmt.Sprintf("NATS cannot listen on %s (--nats)", address), err)
	}
	return l.Close()
}

func awaitReady(ctx context.Context, ns *server.Server, fatal <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !ns.ReadyForConnections(readyPoll) {
		select {
		case text := <-fatal:
			return domain.NewError(domain.Internal, "the NATS server did not start: "+text)
		case <-ctx.Done():
			return domain.WrapError(domain.Unavailable, "the NATS server was not ready in time", ctx.Err())
		default:
		}
	}
	return nil
}

// URL returns the address that clients use, with the port that was bound.
func (s *Server) URL() string {
	host := s.host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	port := 0
	if address, ok := s.ns.Addr().(*net.TCPAddr); ok {
		port = address.Port
	}
	return s.scheme + net.JoinHostPort(host, strconv.Itoa(port))
}

// Account returns the NATS account that everything of Belfry is in.
func (s *Server) Account() string { return account }

// Issuer returns the key that signs executors' permissions: natsauth.Config.Issuer.
func (s *Server) Issuer() nkeys.KeyPair { return s.issuer }

// InProcessURL returns the URL for connections within the process, which are in the clear whatever the port speaks.
func (s *Server) InProcessURL() string { return "nats://" + strings.TrimPrefix(s.URL(), s.scheme) }

// SystemOptions returns what nats.Connect(s.InProcessURL(), …) needs to connect as the system side, which may do
// everything. The connection is made within the process, without TCP.
func (s *Server) SystemOptions() []nats.Option {
	public, err := s.system.PublicKey()
	if err != nil { // cannot happen with a key that was made here
		return []nats.Option{func(*nats.Options) error { return err }}
	}
	return []nats.Option{nats.InProcessServer(s.ns), nats.Nkey(public, s.system.Sign)}
}

// InProcess returns the option that connects within the process, for executors that bring a group's token.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s.ns) }

// DropGroup ends every connection of the group's executors and returns how many there were. They come back
// only with a token that is valid now; call it after a token was replaced.
func (s *Server) DropGroup(group string) (int, error) {
	const page = 1024
	dropped := 0
	for {
		list, err := s.ns.Connz(&server.ConnzOptions{Username: true, User: group, State: server.ConnOpen, Limit: page})
		if err != nil {
			return dropped, domain.WrapError(domain.Internal, "list NATS connections", err)
		}
		for _, conn := range list.Conns {
			// One that ended by itself meanwhile is as good.
			if s.ns.DisconnectClientByID(conn.Cid) == nil {
				dropped++
			}
		}
		if len(list.Conns) < page {
			return dropped, nil
		}
	}
}

// Stop ends all connections and the server, and returns when its files are closed. If ctx ends before, the
// shutdown goes on and StoreDir stays locked until it has finished.
func (s *Server) Stop(ctx context.Context) error {
	go s.ns.Shutdown()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return domain.WrapError(domain.Unavailable, "stop the NATS server", ctx.Err())
	}
}
