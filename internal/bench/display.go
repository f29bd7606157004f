package bench

import (
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// display prints notices, and on a terminal also the progress.
type display struct {
	out   io.Writer
	quiet bool
	tty   bool
	line  bool // the terminal shows a progress line, which the next output replaces
}

func newDisplay(out io.Writer, quiet bool) *display {
	d := &display{out: out, quiet: quiet}
	if f, ok := out.(*os.File); ok {
		d.tty = isatty.IsTerminal(f.Fd())
	}
	return d
}

// say prints a line that stays on the screen.
func (d *display) say(format string, args ...any) {
	if d.quiet {
		return
	}
	d.clear()
	fmt.Fprintf(d.out, format+"\n", args...)
}

// progress replaces the progress line. It prints nothing if the output is not a terminal.
func (d *display) progress(format string, args ...any) {
	if d.quiet || !d.tty {
		return
	}
	d.clear()
	fmt.Fprintf(d.out, format, args...)
	d.line = true
}

// clear removes the progress line.
func (d *display) clear() {
	if d.line {
		fmt.Fprint(d.out, "\r\x1b[K")
		d.line = false
	}
}
