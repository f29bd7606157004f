package natsinfra_test

import (
	"net"
	"slices"
	"testing"

	"github.com/belfryhq/belfry/internal/natsinfra"
)

// A server that refuses connections and one that accepts them without a greeting are silent.
func TestSilent(t *testing.T) {
	listen := func() (net.Listener, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l, l.Addr().String()
	}
	alive, greets := listen()
	go func() {
		for {
			conn, err := alive.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("INFO {}\r\n"))
			_ = conn.Close()
		}
	}()
	_, frozen := listen()
	dead, gone := listen()
	_ = dead.Close()
	got := natsinfra.Silent(t.Context(), []string{"nats://u:p@" + greets, "nats://" + frozen, "tls://" + gone, "nats://" + gone, "::no url"})
	want := []string{frozen, gone}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
