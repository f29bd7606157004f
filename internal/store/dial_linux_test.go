package store

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// What is sent to a host that takes nothing more is given up by the kernel after silentMax: for a connection that has
// vanished that would otherwise take a quarter of an hour. A peer that never reads stands for the host, as packets that
// get lost take privileges.
func TestDialGivesUpWhatNobodyTakes(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: it waits for the kernel's patience to end; -short leaves it out")
	}
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := dial(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(6 * silentMax)); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Write(make([]byte, 256<<20)) // more than any socket buffers hold
	if !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("writing to a host that takes nothing ended with %v", err)
	}
}
