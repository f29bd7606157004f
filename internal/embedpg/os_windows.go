package embedpg

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// The package compiles on Windows because the executor does, and refuses to start there.
var errWindows = errors.New("running an own Postgres is not supported on Windows: name one with --database-url")

const openNoFollow = 0

func tryLock(*os.File) (bool, error) { return false, errWindows }

func ownerOf(fs.FileInfo) (int, error) { return 0, errWindows }

func signalProcess(int, syscall.Signal) error { return errWindows }

func namespacesAllowed(account) bool { return false }

func processesOf(context.Context, string) ([]int, error) { return nil, errWindows }

func startWatchdog(int, syscall.Signal) (func(), error) { return func() {}, errWindows }

func (account) apply(*exec.Cmd, syscall.Signal) {}
