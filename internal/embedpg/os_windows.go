package embedpg

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// The package must compile on Windows, because the binary also contains the executor. Start fails there with this error.
var errWindows = errors.New("the built-in Postgres does not support Windows; name your own server with --database-url")

const openNoFollow = 0

func tryLock(*os.File) (bool, error) { return false, errWindows }

func ownerOf(fs.FileInfo) (int, error) { return 0, errWindows }

func signalProcess(int, syscall.Signal) error { return errWindows }

func namespacesAllowed(account) bool { return false }

func processesOf(context.Context, string) ([]int, error) { return nil, errWindows }

func startWatchdog(int, syscall.Signal) (func(), error) { return func() {}, errWindows }

func (account) apply(*exec.Cmd, syscall.Signal) {}
