package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is the CPU time and memory that a part has used.
type usage struct {
	cpu    time.Duration // user and system time since its start
	memory int64         // resident bytes; counts a page that several processes share only once if the system reports it
}

// clockTick is the unit of CPU times in /proc: USER_HZ, which is 100 on every Linux.
const clockTick = time.Second / 100

// canMeter reports whether this system has /proc, as Linux does, with the CPU time of each process.
func canMeter() bool {
	_, err := readStat(os.Getpid())
	return err == nil
}

// stat holds the needed fields of /proc/<pid>/stat.
type stat struct {
	parent   int
	own      time.Duration // user and system time of the process itself
	children time.Duration // the same of its children that have ended and were waited for
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The second field is the program's name in parentheses, which may contain any character.
	end := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 15 {
		return stat{}, fmt.Errorf("/proc/%d/stat has an unexpected format", pid)
	}
	var n [5]int64 // ppid, utime, stime, cutime, cstime
	for i, at := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return stat{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
	}
	return stat{parent: int(n[0]), own: time.Duration(n[1]+n[2]) * clockTick, children: time.Duration(n[3]+n[4]) * clockTick}, nil
}

// usageOf returns the usage of one process.
func usageOf(pid int) (usage, error) {
	s, err := readStat(pid)
	if err != nil {
		return usage{}, err
	}
	return usage{cpu: s.own, memory: resident(pid)}, nil
}

// usageOfTree returns the usage of a process and its children, including those that have ended. Postgres needs this.
func usageOfTree(root int) (usage, error) {
	s, err := readStat(root)
	if err != nil {
		return usage{}, err
	}
	sum := usage{cpu: s.own + s.children, memory: proportional(root)}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return usage{}, err
	}
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if child, err := readStat(pid); err == nil && child.parent == root {
			sum.cpu += child.own + child.children
			sum.memory += proportional(pid)
		}
	}
	return sum, nil
}

// resident returns the memory of a process, or 0 if the system does not report it.
func resident(pid int) int64 { return kilobytes(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:") }

// proportional returns the memory of a process with its share of shared pages. If the system does not report that, it
// returns the resident memory.
func proportional(pid int) int64 {
	if n := kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:"); n > 0 {
		return n
	}
	return resident(pid)
}

// kilobytes returns the value of a line such as "VmRSS:  12 kB", in bytes.
func kilobytes(path, key string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == key {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}

// machineBusy returns the CPU time that all processes of the machine have used since its start, or 0 if unknown.
func machineBusy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return busyOf(line)
}

// busyOf sums the line "cpu user nice system idle iowait irq softirq steal …" without idle and iowait. The time of
// guests is part of user.
func busyOf(line string) time.Duration {
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0
	}
	var busy time.Duration
	for _, at := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0
		}
		busy += time.Duration(n) * clockTick
	}
	return busy
}
