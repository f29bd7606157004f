//go:build unix

package e2e

import (
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// natsPub implements the part of the command nats that docs/events.md uses.
func natsPub() int {
	var server string
	m := nats.NewMsg("")
	args := os.Args[1:]
	for len(args) > 1 {
		switch args[0] {
		case "--server":
			server = args[1]
			args = args[2:]
		case "-H":
			name, value, _ := strings.Cut(args[1], ":")
			m.Header.Set(name, value)
			args = args[2:]
		default: // pub
			if args[0] != "pub" {
				m.Subject, m.Data = args[0], []byte(args[1])
				args = args[1:]
			}
			args = args[1:]
		}
	}
	nc, err := nats.Connect(server, nats.Timeout(patience))
	if err == nil {
		defer nc.Close()
		if err = nc.PublishMsg(m); err == nil {
			err = nc.Flush()
		}
	}
	if err == nil {
		err = nc.LastError()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
