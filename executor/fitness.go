package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

const (
	// lookEvery is how often the executor checks whether it can take runs. A change is sent with a heartbeat at once. So
	// this period also bounds the heartbeats that changes cause.
	lookEvery = time.Second
	// An instance with fewer than spareFiles free file descriptors takes no runs. A handler often needs several: a
	// command has six for its pipes. The instance takes runs again when spareAgain are free.
	spareFiles = 16
	spareAgain = 20
)

// newUnfit returns why the instance takes no runs. The message is cut to its maximum.
func newUnfit(reason, message string) *wire.Unfit {
	if len(message) > wire.MaxUnfitMessage {
		message = message[:wire.MaxUnfitMessage]
	}
	return &wire.Unfit{Reason: reason, Message: strings.ToValidUTF8(message, "")}
}

// reasonOf returns the reason, "" for an instance that takes runs.
func reasonOf(u *wire.Unfit) string {
	if u == nil {
		return ""
	}
	return u.Reason
}

// fileWatch watches the process's file descriptors. Without free ones, handlers fail at once, and connections to NATS
// cannot be made again.
type fileWatch struct {
	unfit atomic.Pointer[wire.Unfit] // nil while enough are free
	count fileCount                  // used only by look
}

// look checks the file descriptors, and logs each change. Only one goroutine calls it.
func (w *fileWatch) look(log *slog.Logger) {
	before := w.unfit.Load()
	now := judgeFiles(openFile(), w.count.read, before != nil)
	w.unfit.Store(now)
	switch {
	case now != nil && before == nil:
		log.Error("this process is out of file descriptors or nearly so, offers are refused until some are free", "err", now.Message)
	case now == nil && before != nil:
		log.Info("file descriptors are free again")
	}
}

// judgeFiles returns why the instance takes no runs, nil if enough file descriptors are free. opened is the error of an
// attempt to open a file. count returns how many descriptors are open and may be open; ok is false if that is not known
// on this system. out says that there were too few before.
func judgeFiles(opened error, count func() (open, limit int, ok bool), out bool) *wire.Unfit {
	if outOfFiles(opened) {
		return newUnfit(wire.UnfitOutOfFiles, opened.Error())
	}
	spare := spareFiles
	if out {
		spare = spareAgain
	}
	if open, limit, ok := count(); ok && limit-open < spare {
		return newUnfit(wire.UnfitOutOfFiles, fmt.Sprintf("%d of %d file descriptors are open", open, limit))
	}
	return nil
}

// openFile tries to open a file that is always there and on no disk that could block.
func openFile() error {
	f, err := os.Open(os.DevNull)
	if err == nil {
		f.Close()
	}
	return err
}

// outOfFiles reports whether an error says that the process or the system has no file descriptor left.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
