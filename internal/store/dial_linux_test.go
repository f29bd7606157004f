package store

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// If the peer acknowledges no more data, the kernel ends the connection after silentMax. By default this takes a quarter of an
// hour. The test uses a peer that never reads, because dropping packets needs privileges.
func TestDialGivesUpWhatNobodyTakes(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: a peer that reads nothing, because the kernel gives up late; -short leaves it out")
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
		t.Errorf("writing to a peer that reads nothing ended with %v", err)
	}
}
