package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	readyWithin  = 30 * time.Second
	answerWithin = 60 * time.Second // long, because a measurement may use the whole machine
	endWithin    = 30 * time.Second
)

// child is the parent's view of a running part.
type child struct {
	name    string // in the report; all processes of one kind share it
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	replies chan reply    // closed after ended
	ended   chan struct{} // closed when the process has ended
	err     error         // written before ended is closed
	asking  sync.Mutex    // one ask at a time
}

// startPart starts this program again as a part, and returns when the part is ready.
func startPart(ctx context.Context, o Order, log io.Writer) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	// The process does not depend on ctx, because an interrupted measurement stops its parts in order.
	cmd := exec.Command(self, "bench-part")
	ownGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = log
	c := &child{name: o.Part, cmd: cmd, stdin: stdin, replies: make(chan reply, 1), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start part %s: %w", o.Part, err)
	}
	go c.listen(stdout)
	err = json.NewEncoder(stdin).Encode(o) //nolint:gosec // only the part receives the password
	if err == nil {
		_, err = c.reply(ctx, "ready", readyWithin)
	}
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// listen reads the replies of the part until it ends.
func (c *child) listen(stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	for {
		var r reply
		if err := readLine(lines, &r); err != nil {
			break
		}
		c.replies <- r
	}
	c.err = c.cmd.Wait()
	close(c.ended)
	close(c.replies)
}

func (c *child) reply(ctx context.Context, event string, within time.Duration) (json.RawMessage, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(within):
		return nil, fmt.Errorf("part %s did not answer %q within %v", c.name, event, within)
	case r, ok := <-c.replies:
		switch {
		case !ok:
			return nil, fmt.Errorf("part %s ended before it answered %q: %w", c.name, event, c.exit())
		case r.Error != "":
			return nil, fmt.Errorf("part %s: %s: %s", c.name, event, r.Error)
		case r.Event != event:
			return nil, fmt.Errorf("part %s answered %q instead of %q", c.name, r.Event, event)
		}
		return r.Data, nil
	}
}

func (c *child) exit() error {
	if c.err == nil {
		return errors.New("exit code 0")
	}
	return c.err
}

// ask sends a request to the part and waits for the answer.
func (c *child) ask(ctx context.Context, do string) (json.RawMessage, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	if err := json.NewEncoder(c.stdin).Encode(ask{Do: do}); err != nil {
		return nil, fmt.Errorf("ask part %s to %s: %w", c.name, do, err)
	}
	return c.reply(ctx, do, answerWithin)
}

// stop stops the part and waits until it has ended.
func (c *child) stop() error {
	_ = c.stdin.Close() // an error means that the part has ended already
	timer := time.AfterFunc(endWithin, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	for range c.replies { //nolint:revive // the replies of a part that is being stopped are ignored
	}
	<-c.ended
	if c.err != nil {
		return fmt.Errorf("part %s: %w", c.name, c.err)
	}
	return nil
}

// stopAll stops parts in the reverse order of their start.
func stopAll(parts []*child) error {
	var errs []error
	for i := len(parts) - 1; i >= 0; i-- {
		errs = append(errs, parts[i].stop())
	}
	return errors.Join(errs...)
}
